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

/// kFlat: the record of one (token, rank) pair, stored to its final place.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void send_record(G group,
                                const BlockView<Exec>& outputs,
                                const DispatchParams& params,
                                int rank,
                                std::int64_t token) {
  using Memory = typename Exec::Memory;
  const RoutingView<Exec> routing(params.routing);
  const std::int64_t row = routing.flat_row(rank, token);
  if (row < 0) return;
  const int topk = routing.topk();
  const std::int32_t* experts = routing.experts_of(token);
  std::byte* ids = outputs.section(rank, layout::Section::kTopkIdx) + row * topk * params.idx_bytes;
  auto* weights = outputs.template array<float>(rank, layout::Section::kTopkWeights) + row * topk;
  primitives::for_each_strided(group, topk, [&](std::int64_t i) {
    const int k = static_cast<int>(i);
    const bool is_here = experts[k] >= 0 && params.routing.rank_of[experts[k]] == rank &&
                         RoutingView<Exec>::is_first_of_expert(experts, k);
    const std::int32_t id = is_here ? params.routing.local_of[experts[k]] : -1;
    if (params.idx_bytes == 8) {
      Memory::store(layout::array_at<std::int64_t>(ids, 0) + k, std::int64_t{id});
    } else {
      Memory::store(layout::array_at<std::int32_t>(ids, 0) + k, id);
    }
    if (!params.has_weights) return;
    Memory::store(weights + k,
                  is_here ? summed_weight(experts, topk, k, params.topk_weights, token) : 0.0F);
  });
  if (group.thread_rank() == 0) {
    Memory::store(outputs.template array<std::int32_t>(rank, layout::Section::kSrcTokens) + row,
                  static_cast<std::int32_t>(token));
  }
}

/// Records of all token groups that this lane gets tickets for. False if the group gave up.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE bool send_records(G group,
                                 const primitives::OpContext<Exec>& op,
                                 const DispatchParams& params,
                                 const primitives::Lane& lane) {
  const RoutingView<Exec> routing(params.routing);
  const BlockView<Exec> outputs{&op};
  const std::int64_t num_tokens = routing.shape().num_tokens;
  std::int64_t* tally = clear_tally(group, op, lane);
  primitives::TicketStream<Exec> tickets(group, op.ticket(layout::Ticket::kRecord),
                                         routing.shape().num_groups());
  for (std::int64_t i = tickets.next(group); i >= 0; i = tickets.next(group)) {
    if (!op.may_proceed()) return false;
    const std::int64_t first = i * layout::kGroupTokens;
    const std::int64_t end =
        first + layout::kGroupTokens < num_tokens ? first + layout::kGroupTokens : num_tokens;
    for (std::int64_t token = first; token < end; ++token) {
      const std::int32_t* experts = routing.experts_of(token);
      for (int k = 0; k < routing.topk(); ++k) {
        if (!routing.is_first_of_rank(experts, k)) continue;
        const std::int32_t rank = params.routing.rank_of[experts[k]];
        send_record(group, outputs, params, rank, token);
        if (group.thread_rank() == 0) ++tally[rank];
      }
    }
  }
  add_arrivals(group, op, op.control().arrived, tally);
  return true;
}

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
  primitives::TicketStream<Exec> tickets(group, op.ticket(layout::Ticket::kPad),
                                         params.routing.num_local_experts);
  for (std::int64_t i = tickets.next(group); i >= 0; i = tickets.next(group)) {
    const std::int64_t first = offsets[i] + counts[i];
    const std::int64_t end = offsets[i + 1] < capacity ? offsets[i + 1] : capacity;
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

/// The last lane: waits until everything has arrived here, then opens the counters for the next
/// launch.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void leave_dispatch(G group,
                                   const primitives::OpContext<Exec>& op,
                                   const DispatchParams& params) {
  if (!is_last_to_leave(group, op)) return;
  const RoutingView<Exec> routing(params.routing);
  const auto verdict = static_cast<Verdict>(Exec::Memory::load(&op.local()->verdict.value));
  const bool has_moved = params.has_moves && verdict == Verdict::kAccepted;
  const layout::ControlLayout& control = op.control();
  const std::int64_t words_per_pair = params.has_records ? 2 : 1;
  for (int src = 0; has_moved && src < op.num_ranks(); ++src) {
    const GrowingCounter arrived{primitives::WaitSite::kArrived, control.arrived,
                                 control.arrived_base};
    if (!await_growth(group, op, arrived, src, routing.pairs_from()[src] * words_per_pair)) return;
    const GrowingCounter returned{primitives::WaitSite::kReturned, control.returned,
                                  control.returned_base};
    const std::int64_t num_returns = params.returns_gradient ? routing.counts()[src] : 0;
    if (!await_growth(group, op, returned, src, num_returns)) return;
  }
  reset_local_state(group, op, params.has_moves || verdict != Verdict::kAccepted);
}

}  // namespace ep::intranode
