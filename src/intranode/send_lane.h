// SPDX-License-Identifier: Apache-2.0
// One lane of the send role: loads each row once and stores it straight to its final places.
#pragma once

#include "intranode/arrivals.h"
#include "intranode/expert_sender.h"
#include "intranode/routing_view.h"
#include "primitives/row_pipe.h"
#include "primitives/ticket.h"

#include <cstddef>
#include <cstdint>

namespace ep::intranode {

/// Scratch of a lane that sends rows: where the rows of its peers begin, and what the threads of
/// the lane tell each other about the token at hand.
struct SendScratch {
  std::int64_t* tally;  // [num_ranks], pairs sent
  // kFlat
  std::byte** rows;          // [num_ranks], where row 0 of the rank lies
  std::byte** scales;        // [num_ranks], where its scales lie
  std::int64_t* first_rows;  // [num_ranks], of this rank's tokens there
  std::int64_t* capacities;  // [num_ranks]
  std::int32_t* row;         // [num_ranks], of the token at hand, -1: none
  // kExpertMajor
  ExpertScratch experts;

  EP_HOST_DEVICE SendScratch(const primitives::Lane& lane, const layout::TableShape& shape)
      : tally(layout::array_at<std::int64_t>(lane.scratch, 0)),
        rows(layout::array_at<std::byte*>(lane.scratch, part_bytes(shape))),
        scales(layout::array_at<std::byte*>(lane.scratch, 2 * part_bytes(shape))),
        first_rows(layout::array_at<std::int64_t>(lane.scratch, 3 * part_bytes(shape))),
        capacities(layout::array_at<std::int64_t>(lane.scratch, 4 * part_bytes(shape))),
        row(layout::array_at<std::int32_t>(lane.scratch, 5 * part_bytes(shape))),
        experts(lane.scratch + 6 * part_bytes(shape), shape) {}

  EP_HOST_DEVICE static std::int64_t part_bytes(const layout::TableShape& shape) {
    return std::int64_t{8} * shape.num_ranks;
  }
  EP_HOST_DEVICE static std::int64_t bytes(const layout::TableShape& shape) {
    return 6 * part_bytes(shape) + (shape.has_expert_rows ? ExpertScratch::bytes(shape) : 0);
  }
};

/// One lane that sends rows.
template <primitives::Executor Exec, primitives::Coop G>
class SendLane {
 public:
  using Memory = typename Exec::Memory;

  EP_HOST_DEVICE SendLane(G group,
                          const primitives::OpContext<Exec>& op,
                          const DispatchParams& params,
                          const primitives::Lane& lane)
      : group_(group),
        op_(&op),
        params_(&params),
        routing_(params.routing),
        outputs_{&op},
        scratch_(lane, params.routing.tables.shape),
        experts_(group, op, params, scratch_.experts),
        pipe_(Exec::make_row_pipe(group, lane, params.op)),
        tickets_(group,
                 op.ticket(layout::Ticket::kSend),
                 layout::div_up(num_tokens(), params.send_ticket_tokens())),
        abort_(op) {}

  /// Starts as many loads as the pipe holds.
  EP_HOST_DEVICE void prefetch() {
    while (!pipe_.is_full() && advance()) pipe_.load(token_, parts_of(token_));
  }

  /// kFlat: where the outputs lie, as far as peers have told already.
  EP_HOST_DEVICE void locate_early() {
    if (params_->has_expert_rows()) return;
    primitives::for_each_strided(group_, op_->num_ranks(), [&](std::int64_t i) {
      const int rank = static_cast<int>(i);
      scratch_.rows[rank] = outputs_.section_if_here(rank, layout::Section::kRows);
      scratch_.scales[rank] = outputs_.section_if_here(rank, layout::Section::kScales);
    });
  }

  /// Sends all rows that this lane gets tickets for. False if the group gave up.
  EP_HOST_DEVICE bool run() {
    primitives::for_each_strided(group_, op_->num_ranks(),
                                 [&](std::int64_t rank) { scratch_.tally[rank] = 0; });
    if (params_->has_expert_rows()) {
      experts_.begin();
    } else {
      locate_flat();
    }
    // [sync:announce-block] acquire, for the bulk stores that follow: the blocks may be written.
    pipe_.fence_acquired();
    while (!pipe_.is_empty()) {
      if (!abort_.may_proceed(group_)) return false;
      const std::int64_t token = pipe_.front();
      if (params_->has_expert_rows()) {
        experts_.look_up(token, scratch_.tally);
        pipe_.wait_front();
        experts_.send(pipe_, token);
      } else {
        find_flat_rows(token);
        pipe_.wait_front();
        send_flat_rows(token);
      }
      pipe_.retire();
      prefetch();
      if (params_->has_expert_rows()) experts_.publish_landed(pipe_, token);
    }
    pipe_.drain();
    experts_.publish_last();
    add_arrivals(group_, *op_, op_->control().arrived, scratch_.tally);
    return true;
  }

 private:
  EP_HOST_DEVICE std::int64_t num_tokens() const {
    return params_->routing.tables.shape.num_tokens;
  }
  EP_HOST_DEVICE primitives::RowParts parts_of(std::int64_t token) const {
    primitives::RowParts parts{params_->x.row(token), params_->x.row_bytes};
    if (params_->pipes_scales) {
      parts.tail = params_->scales.row(token);
      parts.tail_bytes = params_->scales.row_bytes;
    }
    return parts;
  }

  /// The next token of this lane in token_; false when there is none.
  EP_HOST_DEVICE bool advance() {
    if (token_ + 1 < ticket_end_) {
      ++token_;
      return true;
    }
    const std::int64_t ticket = tickets_.next(group_);
    if (ticket < 0) return false;
    token_ = ticket * params_->send_ticket_tokens();
    ticket_end_ = token_ + params_->send_ticket_tokens();
    if (ticket_end_ > num_tokens()) ticket_end_ = num_tokens();
    return true;
  }

  /// What locate_early could not know.
  EP_HOST_DEVICE void locate_flat() {
    primitives::for_each_strided(group_, op_->num_ranks(), [&](std::int64_t i) {
      const int rank = static_cast<int>(i);
      scratch_.first_rows[rank] = routing_.first_rows()[rank];
      scratch_.capacities[rank] = routing_.capacities()[rank];
      if (scratch_.rows[rank] == nullptr)
        scratch_.rows[rank] = outputs_.section(rank, layout::Section::kRows);
      if (scratch_.scales[rank] == nullptr)
        scratch_.scales[rank] = outputs_.section(rank, layout::Section::kScales);
    });
  }

  /// The token's row at every rank that owns one of its experts.
  EP_HOST_DEVICE void find_flat_rows(std::int64_t token) {
    group_.sync();  // all threads are done with the token before
    primitives::for_each_strided(group_, op_->num_ranks(), [&](std::int64_t i) {
      const int rank = static_cast<int>(i);
      const auto place = routing_.place_of(rank, token);
      const std::int64_t row = scratch_.first_rows[rank] + place.index;
      const bool is_kept = place.goes_there && row < scratch_.capacities[rank];
      scratch_.row[rank] = is_kept ? static_cast<std::int32_t>(row) : -1;
      if (place.goes_there) ++scratch_.tally[rank];
    });
    group_.sync();
  }

  /// This rank last, its store is the fastest.
  EP_HOST_DEVICE void send_flat_rows(std::int64_t token) {
    int rank = op_->rank();
    for (int i = 0; i < op_->num_ranks(); ++i) {
      rank = rank + 1 == op_->num_ranks() ? 0 : rank + 1;
      if (scratch_.row[rank] >= 0) send_row(rank, token, scratch_.row[rank]);
    }
  }

  EP_HOST_DEVICE void send_row(int rank, std::int64_t token, std::int64_t row) {
    const std::int64_t row_bytes = params_->x.row_bytes;
    pipe_.store(scratch_.rows[rank] + row * row_bytes, {0, row_bytes});
    const RowInput& scales = params_->scales;
    if (scales.row_bytes == 0) return;
    std::byte* dst = scratch_.scales[rank] + row * scales.row_bytes;
    if (params_->pipes_scales) {
      pipe_.store(dst, {row_bytes, scales.row_bytes});
    } else {
      Exec::copy_bytes(group_, dst, scales.row(token), scales.row_bytes);
    }
  }

  G group_;
  const primitives::OpContext<Exec>* op_;
  const DispatchParams* params_;
  RoutingView<Exec> routing_;
  BlockView<Exec> outputs_;
  SendScratch scratch_;
  ExpertSender<Exec, G> experts_;
  typename Exec::RowPipe pipe_;
  primitives::TicketStream<Exec> tickets_;
  primitives::AbortWatch<Exec> abort_;
  std::int64_t token_ = -1;
  std::int64_t ticket_end_ = 0;
};

}  // namespace ep::intranode
