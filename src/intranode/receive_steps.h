// SPDX-License-Identifier: Apache-2.0
// What a receiver adds to the rows that arrive: records of a flat dispatch, padding, further
// copies; and the end of it.
#pragma once

#include "intranode/arrivals.h"
#include "intranode/routing_view.h"
#include "primitives/ticket.h"

#include <cstddef>
#include <cstdint>

namespace ep::intranode {

/// Scratch of a lane that sends records: a tally, and the records of a token group for one rank, in
/// the order in which the receiver keeps them.
struct RecordScratch {
  std::int64_t* tally;   // [num_ranks]
  std::byte* ids;        // [kGroupTokens][topk] of 4 or 8 bytes
  float* weights;        // [kGroupTokens][topk]
  std::int32_t* tokens;  // [kGroupTokens]

  EP_HOST_DEVICE RecordScratch(const primitives::Lane& lane, const layout::TableShape& shape)
      : tally(layout::array_at<std::int64_t>(lane.scratch, 0)),
        ids(lane.scratch + tally_bytes(shape)),
        weights(layout::array_at<float>(ids, 2 * words_bytes(shape))),
        tokens(layout::array_at<std::int32_t>(ids, 3 * words_bytes(shape))) {}

  EP_HOST_DEVICE static std::int64_t tally_bytes(const layout::TableShape& shape) {
    return layout::round_up(std::int64_t{8} * shape.num_ranks, layout::kLineBytes);
  }
  EP_HOST_DEVICE static std::int64_t words_bytes(const layout::TableShape& shape) {
    return std::int64_t{4} * layout::kGroupTokens * shape.topk;
  }
  EP_HOST_DEVICE static std::int64_t bytes(const layout::TableShape& shape) {
    return tally_bytes(shape) + 3 * words_bytes(shape) + std::int64_t{4} * layout::kGroupTokens;
  }
};

/// Records of one token group for one rank: contiguous there, so they are gathered in scratch and
/// stored as a whole.
template <primitives::Executor Exec, primitives::Coop G>
class RecordSender {
 public:
  EP_HOST_DEVICE RecordSender(G group,
                              const DispatchParams& params,
                              const RecordScratch& scratch,
                              std::int64_t token_group,
                              int rank)
      : group_(group),
        params_(&params),
        routing_(params.routing),
        scratch_(scratch),
        first_token_(token_group * layout::kGroupTokens),
        rank_(rank),
        mask_(routing_.mask_of(rank, token_group)) {}

  EP_HOST_DEVICE int num_pairs() const { return Exec::popcount(mask_); }

  EP_HOST_DEVICE void send(const BlockView<Exec>& outputs) {
    if (mask_ == 0) return;
    const std::int64_t first_row = routing_.row_in(rank_, first_token_);
    const std::int64_t left = routing_.capacities()[rank_] - first_row;
    const std::int64_t num_kept = left < num_pairs() ? left : num_pairs();
    if (num_kept <= 0) return;
    if (params_->idx_bytes == 8) {
      gather<std::int64_t>();
    } else {
      gather<std::int32_t>();
    }
    group_.sync();
    const auto store = [&](layout::Section section, const void* rows, std::int64_t row_bytes) {
      Exec::copy_bytes(group_, outputs.section(rank_, section) + first_row * row_bytes,
                       static_cast<const std::byte*>(rows), num_kept * row_bytes);
    };
    store(layout::Section::kTopkIdx, scratch_.ids, std::int64_t{params_->idx_bytes} * topk());
    if (params_->has_weights)
      store(layout::Section::kTopkWeights, scratch_.weights, std::int64_t{4} * topk());
    store(layout::Section::kSrcTokens, scratch_.tokens, sizeof(std::int32_t));
    group_.sync();
  }

 private:
  EP_HOST_DEVICE int topk() const { return routing_.topk(); }

  /// Records of the tokens that go there.
  template <class Id>
  EP_HOST_DEVICE void gather() {
    primitives::for_each_strided(group_, layout::kGroupTokens, [&](std::int64_t i) {
      const std::uint32_t bit = 1U << i;
      if ((mask_ & bit) == 0) return;
      const int at = Exec::popcount(mask_ & (bit - 1));
      scratch_.tokens[at] = static_cast<std::int32_t>(first_token_ + i);
      EP_NO_UNROLL
      for (int k = 0; k < topk(); k += primitives::kLoadBatch)
        gather_choices(first_token_ + i, k, layout::array_at<Id>(scratch_.ids, 0) + at * topk(),
                       scratch_.weights + at * topk());
    });
  }

  /// Entries [first_k, first_k + kLoadBatch) of a token's records.
  template <class Id>
  EP_HOST_DEVICE void gather_choices(std::int64_t token, int first_k, Id* ids, float* weights) {
    constexpr int kBatch = primitives::kLoadBatch;
    const std::int32_t* experts = routing_.experts_of(token);
    std::int32_t ranks[kBatch];
    std::int32_t locals[kBatch];
    for (int i = 0; i < kBatch; ++i) {
      const std::int32_t expert = first_k + i < topk() ? experts[first_k + i] : -1;
      ranks[i] = routing_.rank_of(expert);
      locals[i] = expert < 0 ? -1 : params_->routing.local_of[expert];
    }
    for (int i = 0; i < kBatch; ++i) {
      const int k = first_k + i;
      if (k >= topk()) break;
      const bool is_here = ranks[i] == rank_ && RoutingView<Exec>::is_first_of_expert(experts, k);
      ids[k] = is_here ? locals[i] : -1;
      if (!params_->has_weights) continue;
      weights[k] = is_here ? summed_weight(experts, topk(), k, params_->topk_weights, token) : 0.0F;
    }
  }

  G group_;
  const DispatchParams* params_;
  RoutingView<Exec> routing_;
  RecordScratch scratch_;
  std::int64_t first_token_;
  int rank_;
  std::uint32_t mask_;
};

/// Records that this lane gets tickets for: one is a token group at one rank. False if the group
/// gave up.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE bool send_records(G group,
                                 const primitives::OpContext<Exec>& op,
                                 const DispatchParams& params,
                                 const primitives::Lane& lane) {
  const layout::TableShape& shape = params.routing.tables.shape;
  const RecordScratch scratch(lane, shape);
  const BlockView<Exec> outputs{&op};
  clear_tally(group, op, lane);
  primitives::TicketStream<Exec> tickets(group, op.ticket(layout::Ticket::kRecord),
                                         shape.num_groups() * op.num_peers());
  for (std::int64_t i = tickets.next(group); i >= 0; i = tickets.next(group)) {
    if (!op.may_proceed()) return false;
    const int rank = op.first_peer() + static_cast<int>(i % op.num_peers());
    RecordSender<Exec, G> sender(group, params, scratch, i / op.num_peers(), rank);
    sender.send(outputs);
    if (group.thread_rank() == 0) scratch.tally[rank] += sender.num_pairs();
  }
  add_arrivals(group, op, op.control().arrived, scratch.tally);
  return true;
}

/// Rows of padding per ticket.
inline constexpr std::int64_t kPadRows = 16;

/// kExpertMajor: zero rows, scales and weights between the end of each expert's rows and the next
/// expert's first.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void pad_experts(G group,
                                const primitives::OpContext<Exec>& op,
                                const DispatchParams& params) {
  const RoutingView<Exec> routing(params.routing);
  const BlockView<Exec> outputs{&op};
  const auto* counts = routing.template array<std::int64_t>(params.routing.tables.expert_counts);
  const auto* offsets = routing.template array<std::int64_t>(params.routing.tables.expert_offsets);
  const std::int64_t capacity = routing.capacities()[op.rank()];
  const std::int64_t pieces = layout::div_up(params.routing.alignment - 1, kPadRows);
  primitives::TicketStream<Exec> tickets(group, op.ticket(layout::Ticket::kPad),
                                         pieces * params.routing.num_local_experts);
  for (std::int64_t i = tickets.next(group); i >= 0; i = tickets.next(group)) {
    const std::int64_t expert = i / pieces;
    const std::int64_t first = offsets[expert] + counts[expert] + i % pieces * kPadRows;
    const std::int64_t limit = offsets[expert + 1] < capacity ? offsets[expert + 1] : capacity;
    const std::int64_t end = first + kPadRows < limit ? first + kPadRows : limit;
    if (first >= end) continue;
    const auto zero = [&](layout::Section section, std::int64_t row_bytes) {
      Exec::zero_bytes(group, outputs.section(op.rank(), section) + first * row_bytes,
                       (end - first) * row_bytes);
    };
    zero(layout::Section::kRows, params.x.row_bytes);
    if (params.scales.row_bytes > 0) zero(layout::Section::kScales, params.scales.row_bytes);
    if (params.has_weights) zero(layout::Section::kTopkWeights, sizeof(float));
  }
}

/// Waits until the owners of this node have returned the router's gradients of all pairs. False if
/// the group gave up.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE bool await_returned(G group,
                                   const primitives::OpContext<Exec>& op,
                                   const RoutingView<Exec>& routing) {
  const GrowingCounter returned{primitives::WaitSite::kReturned, op.control().returned,
                                op.control().returned_base};
  return await_growth(group, op, returned, [&](int owner) {
    return op.is_peer(owner) ? std::int64_t{routing.counts()[owner]} : 0;
  });
}

/// The last lane: waits until everything has arrived here, then opens the counters for the next
/// launch.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void leave_dispatch(G group,
                                   const primitives::OpContext<Exec>& op,
                                   const DispatchParams& params) {
  if (!is_last_to_leave(group, op)) return;
  const RoutingView<Exec> routing(params.routing);
  const Verdict verdict = verdict_of(op);
  const bool has_moved = params.has_moves && verdict == Verdict::kAccepted;
  const layout::ControlLayout& control = op.control();
  if (has_moved) {
    const GrowingCounter arrived{primitives::WaitSite::kArrived, control.arrived,
                                 control.arrived_base};
    const std::int64_t words_per_pair = params.has_records ? 2 : 1;
    if (!await_growth(group, op, arrived,
                      [&](int src) { return routing.pairs_from()[src] * words_per_pair; })) {
      return;
    }
  }
  if (has_moved && params.returns_gradient && !await_returned(group, op, routing)) return;
  reset_local_state(group, op, params.has_moves || verdict != Verdict::kAccepted);
}

}  // namespace ep::intranode
