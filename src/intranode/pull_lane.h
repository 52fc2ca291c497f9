// SPDX-License-Identifier: Apache-2.0
// One lane of the pull role: sums the rows of this rank's tokens, in place or from the ring.
#pragma once

#include "intranode/arrivals.h"
#include "intranode/combine_steps.h"
#include "intranode/routing_view.h"
#include "primitives/slot_ring.h"
#include "primitives/ticket.h"

#include <cstddef>
#include <cstdint>

namespace ep::intranode {

/// Scratch of a lane that pulls.
struct PullScratch {
  /// A row of the token at hand; kExpertMajor.
  struct Term {
    std::int32_t rank;
    std::int32_t row;
    float weight;
  };

  const std::byte** chunks;  // [num_ranks]: rows of the owner in the chunk at hand, in the ring
  std::int64_t* tally;       // [num_ranks]
  Term* terms;               // [topk], by rank, then k

  EP_HOST_DEVICE PullScratch(const primitives::Lane& lane, int num_ranks)
      : chunks(layout::array_at<const std::byte*>(lane.scratch, 0)),
        tally(layout::array_at<std::int64_t>(lane.scratch, part_bytes(num_ranks))),
        terms(layout::array_at<Term>(lane.scratch, 2 * part_bytes(num_ranks))) {}

  EP_HOST_DEVICE static std::int64_t part_bytes(int num_ranks) {
    return layout::round_up(std::int64_t{8} * num_ranks, layout::kLineBytes);
  }
  EP_HOST_DEVICE static std::int64_t bytes(const layout::TableShape& shape) {
    return 2 * part_bytes(shape.num_ranks) + static_cast<std::int64_t>(sizeof(Term)) * shape.topk;
  }
};

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
        scratch_(lane, op.num_ranks()),
        abort_(op) {}

  /// All tokens that this lane gets tickets for. False if the group gave up.
  EP_HOST_DEVICE bool run() {
    // [sync:announce-block] acquire, for the bulk loads that follow.
    reducer_.fence_acquired();
    const std::int64_t num_tokens = routing_.shape().num_tokens;
    const bool has_ring = has_ring_rows();
    const std::int64_t ticket_tokens = has_ring ? layout::kChunkTokens : params_->ticket_tokens;
    std::int64_t num_pulled = 0;
    primitives::TicketStream<Exec> tickets(group_, op_->ticket(layout::Ticket::kPull),
                                           layout::div_up(num_tokens, ticket_tokens));
    for (bool is_over = false; !is_over;) {
      const std::int64_t ticket = tickets.next(group_);
      is_over = ticket < 0;
      if (!abort_.may_proceed(group_) || (has_ring && !is_over && !await_chunk(ticket)))
        return false;
      const std::int64_t first = is_over ? num_tokens : ticket * ticket_tokens;
      const std::int64_t left = num_tokens - first;
      const std::int64_t num_here = left < ticket_tokens ? left : ticket_tokens;
      pull_tokens(first, num_here, has_ring || is_over);
      num_pulled += num_here;
      if (has_ring && !is_over) release_chunk(ticket);
    }
    reducer_.drain(group_);
    primitives::for_each_strided(group_, op_->num_ranks(),
                                 [&](std::int64_t rank) { scratch_.tally[rank] = num_pulled; });
    add_arrivals(group_, *op_, op_->control().pulled, scratch_.tally);
    return true;
  }

 private:
  EP_HOST_DEVICE bool has_ring_rows() const {
    bool has_any = false;
    for (int owner = 0; owner < op_->num_ranks(); ++owner)
      has_any |= uses_ring(*op_, *params_, owner);
    return has_any;
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
      if (group_.thread_rank() == 0) scratch_.chunks[owner] = rows;
    }
    reducer_.fence_acquired();  // [sync:ring-ready] acquire, for the bulk loads that follow
    group_.sync();
    return true;
  }

  EP_HOST_DEVICE void release_chunk(std::int64_t chunk) {
    reducer_.drain(group_);
    for (int owner = 0; owner < op_->num_ranks(); ++owner) {
      if (is_in_ring(owner, chunk)) ring_.release(group_, owner, chunk);
    }
  }

  /// Tokens [first, first + count); `finishes`: all sums so far, too.
  EP_HOST_DEVICE void pull_tokens(std::int64_t first, std::int64_t count, bool finishes) {
    for (std::int64_t i = 0; i < count + (finishes ? 1 : 0); ++i) {
      auto sum = reducer_.begin(group_);
      if (i < count) describe(sum, first + i, first);
      reducer_.push(group_, sum);
      if (i < count && params_->side_out != nullptr) gather_side_values(first + i);
    }
  }

  /// Terms per rank in ascending rank order; within a rank in k order.
  EP_HOST_DEVICE void describe(typename Exec::RowReducer::Sum& sum,
                               std::int64_t token,
                               std::int64_t chunk_first) {
    sum.out = params_->out + token * params_->out_stride_bytes;
    if (params_->bias.data != nullptr) sum.bias = params_->bias.row(token);
    if (params_->has_expert_rows()) {
      add_expert_terms(sum, token, chunk_first);
    } else {
      add_flat_terms(sum, token, chunk_first);
    }
  }

  EP_HOST_DEVICE void add_flat_terms(typename Exec::RowReducer::Sum& sum,
                                     std::int64_t token,
                                     std::int64_t chunk_first) const {
    for (int rank = 0; rank < op_->num_ranks(); ++rank) {
      if (!routing_.goes_to(rank, token)) continue;
      const std::int64_t row = routing_.flat_row(rank, token);
      if (row < 0) continue;
      sum.add(
          uses_ring(*op_, *params_, rank) ? ring_row(rank, token, chunk_first) : row_at(rank, row),
          1.0F);
      sum.end_hop();
    }
  }

  /// The pair's row in the chunk that `rank` sent.
  EP_HOST_DEVICE const std::byte* ring_row(int rank,
                                           std::int64_t token,
                                           std::int64_t chunk_first) const {
    const std::int64_t position = routing_.row_in(rank, token) - routing_.row_in(rank, chunk_first);
    return scratch_.chunks[rank] + position * params_->rows.row_bytes;
  }

  EP_HOST_DEVICE void add_expert_terms(typename Exec::RowReducer::Sum& sum,
                                       std::int64_t token,
                                       std::int64_t chunk_first) {
    sort_terms(token);
    for (int i = 0; i < routing_.topk(); ++i) {
      const PullScratch::Term term = scratch_.terms[i];
      if (term.row >= 0 && !uses_ring(*op_, *params_, term.rank)) {
        sum.add(row_at(term.rank, term.row), term.weight);
      } else if (term.row >= 0 && !is_same_hop(i)) {
        // The owner has summed up the pair's rows.
        sum.add(ring_row(term.rank, token, chunk_first), 1.0F);
      }
      if (ends_hop(i)) sum.end_hop();
    }
  }
  /// True if an earlier term has a row at the same rank.
  EP_HOST_DEVICE bool is_same_hop(int i) const {
    bool is_same = false;
    for (int earlier = i - 1; earlier >= 0 && !is_same; --earlier) {
      if (scratch_.terms[earlier].rank != scratch_.terms[i].rank) break;
      is_same = scratch_.terms[earlier].row >= 0;
    }
    return is_same;
  }
  EP_HOST_DEVICE bool ends_hop(int i) const {
    return i + 1 == routing_.topk() || scratch_.terms[i + 1].rank != scratch_.terms[i].rank;
  }

  /// scratch_.terms: every k, by rank, then k; those without a row of their own have row -1.
  EP_HOST_DEVICE void sort_terms(std::int64_t token) {
    const std::int32_t* experts = routing_.experts_of(token);
    group_.sync();  // all threads are done with the token before
    primitives::for_each_strided(group_, routing_.topk(), [&](std::int64_t i) {
      const int k = static_cast<int>(i);
      const std::int32_t rank = routing_.rank_of(experts[k]);
      int place = 0;
      for (int other = 0; other < routing_.topk(); ++other) {
        const std::int32_t other_rank = routing_.rank_of(experts[other]);
        if (other_rank < rank || (other_rank == rank && other < k)) ++place;
      }
      scratch_.terms[place] = make_term(experts, k, token);
    });
    group_.sync();
  }
  EP_HOST_DEVICE PullScratch::Term make_term(const std::int32_t* experts,
                                             int k,
                                             std::int64_t token) const {
    PullScratch::Term term{routing_.rank_of(experts[k]), -1, 1.0F};
    if (experts[k] < 0 || !RoutingView<Exec>::is_first_of_expert(experts, k)) return term;
    term.row = static_cast<std::int32_t>(routing_.expert_row(experts[k], token));
    if (params_->sum.weighted)
      term.weight = summed_weight(experts, routing_.topk(), k, params_->weights.input, token);
    return term;
  }

  EP_HOST_DEVICE const std::byte* row_at(int rank, std::int64_t row) const {
    if (rank == op_->rank()) return params_->rows.row(row);
    const std::int64_t stride =
        op_->value_from(rank, layout::BlockField::kRowStrideUnits) * layout::kLocationUnit;
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
  PullScratch scratch_;
  primitives::AbortWatch<Exec> abort_;
};

}  // namespace ep::intranode
