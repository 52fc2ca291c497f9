// SPDX-License-Identifier: Apache-2.0
// kFlat: the rows of a lane that sends: where each goes at every rank of this node.
#pragma once

#include "intranode/arrivals.h"
#include "intranode/routing_view.h"

#include <cstddef>
#include <cstdint>

namespace ep::intranode {

/// Scratch of a lane that sends rows to ranks.
struct FlatScratch {
  std::byte** rows;          // [num_ranks], where row 0 of the rank lies
  std::byte** scales;        // [num_ranks], where its scales lie
  std::int64_t* first_rows;  // [num_ranks], of this rank's tokens there
  std::int64_t* capacities;  // [num_ranks]
  std::int32_t* row;         // [num_ranks], of the token at hand, -1: none

  EP_HOST_DEVICE FlatScratch(std::byte* scratch, const layout::TableShape& shape)
      : rows(layout::array_at<std::byte*>(scratch, 0)),
        scales(layout::array_at<std::byte*>(scratch, part_bytes(shape))),
        first_rows(layout::array_at<std::int64_t>(scratch, 2 * part_bytes(shape))),
        capacities(layout::array_at<std::int64_t>(scratch, 3 * part_bytes(shape))),
        row(layout::array_at<std::int32_t>(scratch, 4 * part_bytes(shape))) {}

  EP_HOST_DEVICE static std::int64_t part_bytes(const layout::TableShape& shape) {
    return std::int64_t{8} * shape.num_ranks;
  }
  EP_HOST_DEVICE static std::int64_t bytes(const layout::TableShape& shape) {
    return 5 * part_bytes(shape);
  }
};

template <primitives::Executor Exec, primitives::Coop G>
class FlatSender {
 public:
  using Pipe = typename Exec::RowPipe;

  EP_HOST_DEVICE FlatSender(G group,
                            const primitives::OpContext<Exec>& op,
                            const DispatchParams& params,
                            const FlatScratch& scratch)
      : group_(group),
        op_(&op),
        params_(&params),
        routing_(params.routing),
        outputs_{&op},
        scratch_(scratch) {}

  /// Where the outputs lie, as far as peers have told already.
  EP_HOST_DEVICE void locate_early() {
    primitives::for_each_peer(group_, *op_, [&](int rank) {
      scratch_.rows[rank] = outputs_.section_if_here(rank, layout::Section::kRows);
      scratch_.scales[rank] = outputs_.section_if_here(rank, layout::Section::kScales);
    });
  }

  /// What locate_early could not know. Preconditions: locate_early; the verdict is there.
  EP_HOST_DEVICE void begin() {
    primitives::for_each_peer(group_, *op_, [&](int rank) {
      scratch_.first_rows[rank] = routing_.first_rows()[rank];
      scratch_.capacities[rank] = routing_.capacities()[rank];
      if (scratch_.rows[rank] == nullptr)
        scratch_.rows[rank] = outputs_.section(rank, layout::Section::kRows);
      if (scratch_.scales[rank] == nullptr)
        scratch_.scales[rank] = outputs_.section(rank, layout::Section::kScales);
    });
  }

  /// Finds the token's row at every rank that owns one of its experts, and adds the pairs to
  /// `tally`, [num_ranks].
  EP_HOST_DEVICE void look_up(std::int64_t token, std::int64_t* tally) {
    group_.sync();  // all threads are done with the token before
    primitives::for_each_peer(group_, *op_, [&](int rank) {
      const auto place = routing_.place_of(rank, token);
      const std::int64_t row = scratch_.first_rows[rank] + place.index;
      const bool is_kept = place.goes_there && row < scratch_.capacities[rank];
      scratch_.row[rank] = is_kept ? static_cast<std::int32_t>(row) : -1;
      if (place.goes_there) ++tally[rank];
    });
    group_.sync();
  }

  /// Stores the row at the front of the pipe to its places; at this rank last, its store is the
  /// fastest.
  EP_HOST_DEVICE void send(Pipe& pipe, std::int64_t token) {
    const int end = op_->first_peer() + op_->num_peers();
    int rank = op_->is_peer(op_->rank()) ? op_->rank() : end - 1;
    for (int i = 0; i < op_->num_peers(); ++i) {
      rank = rank + 1 == end ? op_->first_peer() : rank + 1;
      if (scratch_.row[rank] >= 0) send_row(pipe, rank, token, scratch_.row[rank]);
    }
  }

 private:
  EP_HOST_DEVICE void send_row(Pipe& pipe, int rank, std::int64_t token, std::int64_t row) {
    const std::int64_t row_bytes = params_->x.row_bytes;
    pipe.store(scratch_.rows[rank] + row * row_bytes, {0, row_bytes});
    const RowInput& scales = params_->scales;
    if (scales.row_bytes == 0) return;
    std::byte* dst = scratch_.scales[rank] + row * scales.row_bytes;
    if (params_->pipes_scales) {
      pipe.store(dst, {row_bytes, scales.row_bytes});
    } else {
      Exec::copy_bytes(group_, dst, scales.row(token), scales.row_bytes);
    }
  }

  G group_;
  const primitives::OpContext<Exec>* op_;
  const DispatchParams* params_;
  RoutingView<Exec> routing_;
  BlockView<Exec> outputs_;
  FlatScratch scratch_;
};

}  // namespace ep::intranode
