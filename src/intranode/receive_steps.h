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

/// Scratch of a lane that sends records: a tally, and one array of the records of a token group, in
/// the order in which the receiver keeps them.
struct RecordScratch {
  std::int64_t* tally;  // [num_ranks]
  std::byte* records;   // [kGroupTokens] of up to topk words of 8 bytes

  EP_HOST_DEVICE RecordScratch(const primitives::Lane& lane, const layout::TableShape& shape)
      : tally(layout::array_at<std::int64_t>(lane.scratch, 0)),
        records(lane.scratch + tally_bytes(shape)) {}

  EP_HOST_DEVICE static std::int64_t tally_bytes(const layout::TableShape& shape) {
    return layout::round_up(std::int64_t{8} * shape.num_ranks, layout::kLineBytes);
  }
  EP_HOST_DEVICE static std::int64_t bytes(const layout::TableShape& shape) {
    return tally_bytes(shape) + std::int64_t{8} * layout::kGroupTokens * shape.topk;
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
    num_kept_ = left < num_pairs() ? left : num_pairs();
    if (num_kept_ <= 0) return;
    const int topk = routing_.topk();
    std::byte* ids = outputs.section(rank_, layout::Section::kTopkIdx);
    if (params_->idx_bytes == 8) {
      send_array<std::int64_t>({ids, first_row, topk},
                               [&](std::int64_t token, int k) { return local_id(token, k); });
    } else {
      send_array<std::int32_t>({ids, first_row, topk},
                               [&](std::int64_t token, int k) { return local_id(token, k); });
    }
    if (params_->has_weights) {
      send_array<float>({outputs.section(rank_, layout::Section::kTopkWeights), first_row, topk},
                        [&](std::int64_t token, int k) { return weight(token, k); });
    }
    send_array<std::int32_t>(
        {outputs.section(rank_, layout::Section::kSrcTokens), first_row, 1},
        [](std::int64_t token, int) { return static_cast<std::int32_t>(token); });
  }

 private:
  /// Where an array of records lies, from its row 0 on.
  struct Place {
    std::byte* rows;
    std::int64_t first_row;
    int num_cols;
  };

  /// value(token, column) of the tokens that go there and are kept.
  template <class T, class Value>
  EP_HOST_DEVICE void send_array(const Place& place, Value value) {
    auto* gathered = layout::array_at<T>(scratch_.records, 0);
    primitives::for_each_strided(group_, layout::kGroupTokens, [&](std::int64_t i) {
      const std::uint32_t bit = 1U << i;
      if ((mask_ & bit) == 0) return;
      T* record = gathered + Exec::popcount(mask_ & (bit - 1)) * place.num_cols;
      for (int col = 0; col < place.num_cols; ++col) record[col] = value(first_token_ + i, col);
    });
    group_.sync();
    const auto row_bytes = static_cast<std::int64_t>(sizeof(T)) * place.num_cols;
    Exec::copy_bytes(group_, place.rows + place.first_row * row_bytes, scratch_.records,
                     num_kept_ * row_bytes);
    group_.sync();
  }

  EP_HOST_DEVICE bool is_here(const std::int32_t* experts, int k) const {
    return experts[k] >= 0 && params_->routing.rank_of[experts[k]] == rank_ &&
           RoutingView<Exec>::is_first_of_expert(experts, k);
  }
  EP_HOST_DEVICE std::int32_t local_id(std::int64_t token, int k) const {
    const std::int32_t* experts = routing_.experts_of(token);
    return is_here(experts, k) ? params_->routing.local_of[experts[k]] : -1;
  }
  EP_HOST_DEVICE float weight(std::int64_t token, int k) const {
    const std::int32_t* experts = routing_.experts_of(token);
    if (!is_here(experts, k)) return 0.0F;
    return summed_weight(experts, routing_.topk(), k, params_->topk_weights, token);
  }

  G group_;
  const DispatchParams* params_;
  RoutingView<Exec> routing_;
  RecordScratch scratch_;
  std::int64_t first_token_;
  int rank_;
  std::uint32_t mask_;
  std::int64_t num_kept_ = 0;
};

/// Records of all token groups that this lane gets tickets for. False if the group gave up.
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
                                         shape.num_groups());
  for (std::int64_t i = tickets.next(group); i >= 0; i = tickets.next(group)) {
    if (!op.may_proceed()) return false;
    for (int rank = 0; rank < op.num_ranks(); ++rank) {
      RecordSender<Exec, G> sender(group, params, scratch, i, rank);
      sender.send(outputs);
      if (group.thread_rank() == 0) scratch.tally[rank] += sender.num_pairs();
    }
  }
  add_arrivals(group, op, op.control().arrived, scratch.tally);
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
  if (has_moved) {
    const GrowingCounter arrived{primitives::WaitSite::kArrived, control.arrived,
                                 control.arrived_base};
    const std::int64_t words_per_pair = params.has_records ? 2 : 1;
    if (!await_growth(group, op, arrived,
                      [&](int src) { return routing.pairs_from()[src] * words_per_pair; })) {
      return;
    }
  }
  if (has_moved && params.returns_gradient) {
    const GrowingCounter returned{primitives::WaitSite::kReturned, control.returned,
                                  control.returned_base};
    if (!await_growth(group, op, returned, [&](int src) { return routing.counts()[src]; })) return;
  }
  reset_local_state(group, op, params.has_moves || verdict != Verdict::kAccepted);
}

}  // namespace ep::intranode
