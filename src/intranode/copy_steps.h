// SPDX-License-Identifier: Apache-2.0
// kExpertMajor: what an owner does with rows that arrived at the first place of their pair.
#pragma once

#include "intranode/arrivals.h"
#include "intranode/routing_view.h"
#include "primitives/row_reducer.h"
#include "primitives/ticket.h"

#include <cstddef>
#include <cstdint>

namespace ep::intranode {

/// One received pair: its token and the final row of each k (-1: not here, or dropped).
struct PairRecord {
  const std::int32_t* rows;
  std::int32_t token;
  int topk;

  /// True if k has a row and no earlier k has the same.
  EP_HOST_DEVICE bool is_first(int k) const {
    if (rows[k] < 0) return false;
    for (int earlier = 0; earlier < k; ++earlier) {
      if (rows[earlier] == rows[k]) return false;
    }
    return true;
  }
  /// The k whose row the sender wrote, topk if none.
  EP_HOST_DEVICE int first() const {
    int k = 0;
    while (k < topk && rows[k] < 0) ++k;
    return k;
  }
};

/// One lane that follows the chunks of the other ranks.
template <primitives::Executor Exec, primitives::Coop G>
class CopyLane {
 public:
  using Memory = typename Exec::Memory;

  EP_HOST_DEVICE CopyLane(G group,
                          const primitives::OpContext<Exec>& op,
                          const DispatchParams& params,
                          const primitives::Lane& lane)
      : group_(group),
        op_(&op),
        params_(&params),
        routing_(params.routing),
        blocks_{&op},
        pipe_(Exec::make_row_pipe(group, lane, params.op)),
        tally_(clear_tally(group, op, lane)) {}

  /// All chunks that this lane gets tickets for. False if the group gave up.
  EP_HOST_DEVICE bool run() {
    std::int64_t max_chunks = 0;
    for (int src = 0; src < op_->num_ranks(); ++src) {
      if (routing_.chunks_of(src) > max_chunks) max_chunks = routing_.chunks_of(src);
    }
    primitives::TicketStream<Exec> tickets(group_, op_->ticket(layout::Ticket::kCopy),
                                           max_chunks * op_->num_ranks());
    for (std::int64_t i = tickets.next(group_); i >= 0; i = tickets.next(group_)) {
      const int src = static_cast<int>((op_->rank() + i) % op_->num_ranks());
      const std::int64_t chunk = i / op_->num_ranks();
      if (src == op_->rank() && !params_->returns_gradient)
        continue;  // stored to all places by the send role
      if (chunk < routing_.chunks_of(src) && !follow(src, chunk)) return false;
    }
    pipe_.drain();
    add_arrivals(group_, *op_, op_->control().returned, tally_);
    return true;
  }

 private:
  /// Waits for the chunk and copies its rows on. False if the group gave up.
  EP_HOST_DEVICE bool follow(int src, std::int64_t chunk) {
    const auto* flag = op_->template array<std::uint64_t>(op_->control().chunk_flags) +
                       op_->control().chunk_index(src, chunk);
    const bool is_here =
        wait_until(group_, *op_, {primitives::WaitSite::kChunk, src, op_->tag()}, [&] {
          return std::uint64_t{
              layout::tag_in(Memory::load_acquire_sys(flag))};  // [sync:chunk] acquire
        });
    if (!is_here) return false;
    pipe_.fence_acquired();  // [sync:chunk] acquire, for the bulk loads that follow
    const auto* tokens =
        blocks_.template array<std::int32_t>(op_->rank(), layout::Section::kSrcTokens);
    // Only the pairs of this chunk: others of the source may not have landed.
    const std::uint32_t landed = layout::value_in(Memory::load_relaxed_sys(flag));
    const std::int64_t begin = routing_.pair_bases()[src] + layout::first_pair_in(landed);
    for (std::int64_t pair = begin; pair < begin + layout::num_pairs_in(landed); ++pair) {
      const auto* rows =
          blocks_.template array<std::int32_t>(op_->rank(), layout::Section::kRecordRows);
      const PairRecord record{rows + pair * routing_.topk(), tokens[pair], routing_.topk()};
      if (!params_->returns_gradient) {
        copy_pair(record);
      } else if (!scale_pair(record, src)) {
        return false;
      }
    }
    return true;
  }

  /// Further local experts of the pair get their copy.
  EP_HOST_DEVICE void copy_pair(const PairRecord& record) {
    const int first = record.first();
    if (first == record.topk) return;
    pipe_.load(record.rows[first], {row(record.rows[first]), params_->x.row_bytes});
    pipe_.wait_front();
    for (int k = first + 1; k < record.topk; ++k) {
      if (!record.is_first(k)) continue;
      pipe_.store(row(record.rows[k]), {0, params_->x.row_bytes});
      const std::int64_t scale_bytes = params_->scales.row_bytes;
      if (scale_bytes == 0) continue;
      std::byte* scales = blocks_.section(op_->rank(), layout::Section::kScales);
      Exec::copy_bytes(group_, scales + record.rows[k] * scale_bytes,
                       scales + record.rows[first] * scale_bytes, scale_bytes);
    }
    pipe_.retire();
  }

  /// Backward of a weighted combine: every k gets <grad_out, y> sent home, every row grad_out times
  /// its weight. The row that holds grad_out itself is scaled last. False if the group gave up.
  EP_HOST_DEVICE bool scale_pair(const PairRecord& record, int src) {
    if (!op_->may_proceed()) return false;
    const primitives::SumSpec spec{primitives::num_elems_of(params_->x.row_bytes, params_->dtype),
                                   params_->dtype, true};
    const auto* weights = blocks_.template array<float>(op_->rank(), layout::Section::kTopkWeights);
    auto* home = blocks_.template array<float>(src, layout::Section::kSideValues) +
                 std::int64_t{record.token} * record.topk;
    const int first = record.first();
    for (int k = record.topk - 1; k >= 0; --k) {
      if (record.rows[k] < 0) continue;
      const std::byte* grad = row(record.rows[first]);
      if (record.is_first(k)) {
        const float product =
            Exec::dot_rows(group_, grad, params_->expert_rows.row(record.rows[k]), spec);
        for (int same = k; same < record.topk; ++same) {
          if (record.rows[same] == record.rows[k] && group_.thread_rank() == 0)
            Memory::store(home + same, product);
        }
        Exec::scale_row(group_, row(record.rows[k]), grad, weights[record.rows[k]], spec);
      }
    }
    if (group_.thread_rank() == 0) ++tally_[src];
    return true;
  }

  EP_HOST_DEVICE std::byte* row(std::int64_t index) const {
    return blocks_.section(op_->rank(), layout::Section::kRows) + index * params_->x.row_bytes;
  }

  G group_;
  const primitives::OpContext<Exec>* op_;
  const DispatchParams* params_;
  RoutingView<Exec> routing_;
  BlockView<Exec> blocks_;
  typename Exec::RowPipe pipe_;
  std::int64_t* tally_;
};

}  // namespace ep::intranode
