// SPDX-License-Identifier: Apache-2.0
// Steps of the combine roles: preparing, resolving, reading in place, reducing into the ring.
#pragma once

#include "intranode/arrivals.h"
#include "intranode/combine_params.h"
#include "intranode/copy_steps.h"
#include "intranode/routing_view.h"
#include "primitives/slot_ring.h"
#include "primitives/ticket.h"

#include <cstddef>
#include <cstdint>

namespace ep::intranode {

/// Rows of a side array per ticket of the prepare stage.
inline constexpr std::int64_t kSideRowsPerTicket = 256;

EP_HOST_DEVICE inline std::int64_t num_side_tickets(const SideArray& side) {
  if (side.arena_copy == nullptr) return 0;
  return layout::div_up(side.num_rows, kSideRowsPerTicket);
}

/// Copies the rows of one ticket into the arena.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void copy_side_rows(G group, const SideArray& side, std::int64_t ticket) {
  const std::int64_t first = ticket * kSideRowsPerTicket;
  const std::int64_t left = side.num_rows - first;
  const std::int64_t num_rows = left < kSideRowsPerTicket ? left : kSideRowsPerTicket;
  const auto* input = static_cast<const float*>(side.input.data);
  primitives::for_each_strided(group, num_rows * side.num_cols, [&](std::int64_t i) {
    const std::int64_t row = first + i / side.num_cols;
    const std::int64_t col = i % side.num_cols;
    const float value = input[row * side.input.row_stride + col * side.input.col_stride];
    Exec::Memory::store(side.arena_copy + row * side.num_cols + col, value);
  });
}

/// Side arrays into the arena, by tickets. False if the group gave up.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE bool prepare_side_arrays(G group,
                                        const primitives::OpContext<Exec>& op,
                                        const CombineParams& params) {
  const std::int64_t num_weights = num_side_tickets(params.weights);
  const std::int64_t num_tickets = num_weights + num_side_tickets(params.side);
  primitives::TicketStream<Exec> tickets(group, op.ticket(layout::Ticket::kPrepare), num_tickets);
  std::int64_t num_done = 0;
  for (std::int64_t i = tickets.next(group); i >= 0; i = tickets.next(group), ++num_done) {
    if (i < num_weights) {
      copy_side_rows<Exec>(group, params.weights, i);
    } else {
      copy_side_rows<Exec>(group, params.side, i - num_weights);
    }
  }
  stage_complete(group, op, layout::Stage::kPrepared, num_done);
  return stage_wait(group, op, layout::Stage::kPrepared, num_tickets);
}

/// Announces, waits for all ranks and judges. Run by one lane per rank. False if the group gave up.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE bool resolve_combine(G group,
                                    const primitives::OpContext<Exec>& op,
                                    const CombineParams& params) {
  announce_op(group, op, handle_rejection(op, params.routing));
  if (!await_ops(group, op)) return false;
  Verdict verdict = judge_ops(op);
  if (verdict == Verdict::kAccepted) {
    announce_block(group, op, params.block, layout::kAccepted);
    if (!await_blocks(group, op)) return false;
    verdict = judge_blocks(op);
  }
  publish_verdict(group, op, verdict);
  return true;
}

/// True if the rows of `owner` come through the ring to this rank.
template <primitives::Executor Exec>
EP_HOST_DEVICE bool uses_ring(const primitives::OpContext<Exec>& op,
                              const CombineParams& params,
                              int owner) {
  if (owner == op.rank()) return false;
  return params.pushes || Exec::Memory::load(&op.block_at(op.rank(), owner)->is_staged) != 0;
}

/// One lane that reads the rows of this rank's tokens, in place or from the ring, and writes their
/// sums.
template <primitives::Executor Exec, primitives::Coop G>
class PullLane {
 public:
  using Memory = typename Exec::Memory;

  EP_HOST_DEVICE PullLane(G group,
                          const primitives::OpContext<Exec>& op,
                          const CombineParams& params,
                          const primitives::Lane& lane)
      : group_(group),
        op_(&op),
        params_(&params),
        routing_(params.routing),
        blocks_{&op},
        ring_(op),
        reducer_(Exec::make_row_reducer(group, lane, params.op, params.sum)),
        chunks_(layout::array_at<const std::byte*>(lane.scratch, 0)),
        tally_(layout::array_at<std::int64_t>(lane.scratch, tally_offset(op.num_ranks()))) {}

  EP_HOST_DEVICE static std::int64_t tally_offset(int num_ranks) {
    return layout::round_up(std::int64_t{8} * num_ranks, layout::kLineBytes);
  }
  EP_HOST_DEVICE static std::int64_t scratch_bytes(const primitives::OpParams& op) {
    return 2 * tally_offset(op.layout.shape.num_ranks);
  }

  /// All chunks that this lane gets tickets for. False if the group gave up.
  EP_HOST_DEVICE bool run() {
    std::int64_t num_chunks = 0;
    primitives::TicketStream<Exec> tickets(group_, op_->ticket(layout::Ticket::kPull),
                                           routing_.chunks_of(op_->rank()));
    for (std::int64_t i = tickets.next(group_); i >= 0; i = tickets.next(group_), ++num_chunks) {
      if (!op_->may_proceed() || !await_chunk(i)) return false;
      const std::int64_t first = i * layout::kChunkTokens;
      const std::int64_t num_tokens = routing_.shape().num_tokens;
      for (std::int64_t token = first; token < first + layout::kChunkTokens && token < num_tokens;
           ++token) {
        sum_token(token, first);
        if (params_->side_out != nullptr) gather_side_values(token);
      }
      release_chunk(i);
    }
    reducer_.drain(group_);
    primitives::for_each_strided(group_, op_->num_ranks(),
                                 [&](std::int64_t rank) { tally_[rank] = num_chunks; });
    add_arrivals(group_, *op_, op_->control().pulled, tally_);
    return true;
  }

 private:
  /// Rows that the pair still has; 0 if all were dropped.
  EP_HOST_DEVICE int num_rows_at(const std::int32_t* experts, int rank, std::int64_t token) const {
    int num_rows = 0;
    for (int k = 0; k < routing_.topk(); ++k) {
      if (experts[k] < 0 || params_->routing.rank_of[experts[k]] != rank) continue;
      if (!params_->has_expert_rows()) return routing_.flat_row(rank, token) >= 0 ? 1 : 0;
      if (routing_.expert_row(experts[k], token) >= 0) ++num_rows;
    }
    return num_rows;
  }

  /// True if the chunk has rows of `owner` that come through the ring.
  EP_HOST_DEVICE bool is_in_ring(int owner, std::int64_t chunk) const {
    if (!uses_ring(*op_, *params_, owner)) return false;
    const std::int64_t first = chunk * layout::kChunkTokens;
    std::int64_t end = routing_.pairs_before(owner, first + layout::kChunkTokens);
    // A flat owner has no record of a dropped pair.
    const std::int64_t kept = routing_.capacities()[owner] - routing_.first_rows()[owner];
    if (!params_->has_expert_rows() && end > kept) end = kept;
    return routing_.pairs_before(owner, first) < end;
  }

  /// Waits for the chunk of every owner whose rows come through the ring. False if the group gave
  /// up.
  EP_HOST_DEVICE bool await_chunk(std::int64_t chunk) {
    for (int owner = 0; owner < op_->num_ranks(); ++owner) {
      if (!is_in_ring(owner, chunk)) continue;
      const std::byte* rows = ring_.await(group_, owner, chunk);
      if (rows == nullptr) return false;
      if (group_.thread_rank() == 0) chunks_[owner] = rows;
    }
    group_.sync();
    return true;
  }

  EP_HOST_DEVICE void release_chunk(std::int64_t chunk) {
    for (int owner = 0; owner < op_->num_ranks(); ++owner) {
      if (!is_in_ring(owner, chunk)) continue;
      reducer_.drain(group_);
      ring_.release(group_, owner, chunk);
    }
  }

  /// Terms per rank in ascending rank order; within a rank in k order.
  EP_HOST_DEVICE void sum_token(std::int64_t token, std::int64_t chunk_first) {
    const std::int32_t* experts = routing_.experts_of(token);
    auto sum = reducer_.begin(group_);
    sum.out = params_->out + token * params_->out_stride_bytes;
    if (params_->bias.data != nullptr) sum.bias = params_->bias.row(token);
    for (int rank = 0; rank < op_->num_ranks(); ++rank) {
      if (num_rows_at(experts, rank, token) == 0) continue;
      if (uses_ring(*op_, *params_, rank)) {
        const std::int64_t position =
            routing_.row_in(rank, token) - routing_.row_in(rank, chunk_first);
        sum.add(chunks_[rank] + position * params_->rows.row_bytes, 1.0F);
      } else if (params_->has_expert_rows()) {
        add_expert_rows(sum, experts, rank, token);
      } else {
        sum.add(row_at(rank, routing_.flat_row(rank, token)), 1.0F);
      }
      sum.end_hop();
    }
    reducer_.push(group_, sum);
  }

  EP_HOST_DEVICE void add_expert_rows(typename Exec::RowReducer::Sum& sum,
                                      const std::int32_t* experts,
                                      int rank,
                                      std::int64_t token) const {
    for (int k = 0; k < routing_.topk(); ++k) {
      if (experts[k] < 0 || params_->routing.rank_of[experts[k]] != rank) continue;
      if (!RoutingView<Exec>::is_first_of_expert(experts, k)) continue;
      const std::int64_t row = routing_.expert_row(experts[k], token);
      if (row < 0) continue;
      const float weight = params_->sum.weighted ? summed_weight(experts, routing_.topk(), k,
                                                                 params_->weights.input, token)
                                                 : 1.0F;
      sum.add(row_at(rank, row), weight);
    }
  }

  EP_HOST_DEVICE const std::byte* row_at(int rank, std::int64_t row) const {
    if (rank == op_->rank()) return params_->rows.row(row);
    const std::int64_t stride =
        Memory::load(&op_->block_at(op_->rank(), rank)->row_stride_units) * layout::kLocationUnit;
    return blocks_.section(rank, layout::Section::kRows) + row * stride;
  }

  /// The router's gradient: each k gets the value of its (token, expert) row; repeats get the same.
  EP_HOST_DEVICE void gather_side_values(std::int64_t token) const {
    const std::int32_t* experts = routing_.experts_of(token);
    primitives::for_each_strided(group_, routing_.topk(), [&](std::int64_t i) {
      const int k = static_cast<int>(i);
      Memory::store(params_->side_out + token * routing_.topk() + k, side_value(experts, k, token));
    });
  }

  EP_HOST_DEVICE float side_value(const std::int32_t* experts, int k, std::int64_t token) const {
    if (experts[k] < 0) return 0.0F;
    const std::int32_t rank = params_->routing.rank_of[experts[k]];
    const float* values = blocks_.template array<float>(rank, layout::Section::kSideValues);
    if (params_->has_expert_rows()) {
      const std::int64_t row = routing_.expert_row(experts[k], token);
      return row < 0 ? 0.0F : Memory::load(values + row);
    }
    const std::int64_t row = routing_.flat_row(rank, token);
    int first = 0;
    while (experts[first] != experts[k]) ++first;
    return row < 0 ? 0.0F : Memory::load(values + row * routing_.topk() + first);
  }

  G group_;
  const primitives::OpContext<Exec>* op_;
  const CombineParams* params_;
  RoutingView<Exec> routing_;
  BlockView<Exec> blocks_;
  primitives::SlotRing<Exec> ring_;
  typename Exec::RowReducer reducer_;
  const std::byte** chunks_;  // per owner: its rows of the chunk at hand, in the ring
  std::int64_t* tally_;
};

}  // namespace ep::intranode
