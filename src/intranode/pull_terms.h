// SPDX-License-Identifier: Apache-2.0
// Where the rows of this rank's tokens lie: looked up by all threads of a lane, a few tokens at
// once, so that no lookup waits for another one. One class per layout, so that a kernel holds only
// what it needs.
#pragma once

#include "intranode/arrivals.h"
#include "intranode/combine_steps.h"
#include "intranode/pull_scratch.h"
#include "intranode/routing_view.h"
#include "primitives/slot_ring.h"

#include <cstddef>
#include <cstdint>

namespace ep::intranode {

/// What both layouts look up alike.
template <primitives::Executor Exec, primitives::Coop G>
class PullTerms {
 public:
  EP_HOST_DEVICE PullTerms(G group,
                           const primitives::OpContext<Exec>& op,
                           const CombineParams& params,
                           const PullScratch& scratch)
      : group_(group), op_(&op), params_(&params), routing_(params.routing), scratch_(scratch) {}

  /// Once per launch. True if rows of any owner come through the ring.
  EP_HOST_DEVICE bool note_owners() const {
    bool has_ring = false;
    for (int rank = group_.thread_rank(); rank < op_->num_ranks(); rank += group_.size()) {
      scratch_.owners[rank] = op_->is_peer(rank) ? owner_of(rank) : PullScratch::Owner{};
      has_ring |= scratch_.owners[rank].uses_ring != 0;
    }
    return !group_.all(!has_ring);
  }

 protected:
  using Memory = typename Exec::Memory;

  EP_HOST_DEVICE PullScratch::Owner owner_of(int rank) const {
    PullScratch::Owner owner{};
    owner.capacity = routing_.capacities()[rank];
    owner.first_row = routing_.first_rows()[rank];
    owner.uses_ring = uses_ring(*op_, *params_, rank) ? 1 : 0;
    const bool is_own = rank == op_->rank();
    owner.rows =
        is_own ? params_->rows.data : BlockView<Exec>{op_}.section(rank, layout::Section::kRows);
    owner.stride_units =
        is_own ? static_cast<std::uint32_t>(params_->rows.stride_bytes / layout::kLocationUnit)
               : op_->value_from(rank, layout::BlockField::kRowStrideUnits);
    return owner;
  }

  EP_HOST_DEVICE static const std::byte* row_of(const PullScratch::Owner& owner, std::int64_t row) {
    return owner.rows + row * owner.stride_units * layout::kLocationUnit;
  }
  EP_HOST_DEVICE const std::byte* ring_row(int rank, std::int64_t pair) const {
    return primitives::SlotRing<Exec>(*op_).row_from(rank, pair);
  }

  /// Where the router's gradient of the rows at `rank` lies.
  EP_HOST_DEVICE const float* side_values(int rank) const {
    return BlockView<Exec>{op_}.template array<float>(rank, layout::Section::kSideValues);
  }

  G group_;
  const primitives::OpContext<Exec>* op_;
  const CombineParams* params_;
  RoutingView<Exec> routing_;
  PullScratch scratch_;
};

/// kFlat: one term per rank.
template <primitives::Executor Exec, primitives::Coop G>
class FlatTerms : public PullTerms<Exec, G> {
  using Base = PullTerms<Exec, G>;
  using Base::group_;
  using Base::op_;
  using Base::routing_;
  using Base::scratch_;

 public:
  using Base::Base;

  /// Rows of tokens [first, first + count), count <= kBatchTokens.
  EP_HOST_DEVICE void find(std::int64_t first, int count, bool /*has_ring*/) const {
    const int num_ranks = op_->num_ranks();
    group_.sync();  // all threads are done with the tokens before
    primitives::for_each_strided(group_, count * num_ranks, [&](std::int64_t i) {
      const int rank = static_cast<int>(i) % num_ranks;
      const PullScratch::Owner& owner = scratch_.owners[rank];
      std::int32_t pair = routing_.pair_at(rank, first + i / num_ranks);
      if (owner.first_row + pair >= owner.capacity) pair = -1;  // dropped: no row, no record
      const bool is_in_ring = pair >= 0 && owner.uses_ring != 0;
      scratch_.pairs[i] = is_in_ring ? pair : -1;
      scratch_.rows[i] = pair < 0     ? nullptr
                         : is_in_ring ? Base::ring_row(rank, pair)
                                      : Base::row_of(owner, owner.first_row + pair);
    });
    group_.sync();
  }

  /// Terms of token number i of those, by rank in ascending order.
  EP_HOST_DEVICE void add_terms(typename Exec::RowReducer::Sum& sum, int i) const {
    const std::byte* const* rows = scratch_.rows + i * op_->num_ranks();
    for (int rank = 0; rank < op_->num_ranks(); ++rank) {
      if (rows[rank] == nullptr) continue;
      sum.add(rows[rank], 1.0F);
      sum.end_hop();
    }
  }

  /// The router's gradient of k; repeats get the same. Precondition: experts[k] >= 0.
  EP_HOST_DEVICE float side_value(const std::int32_t* experts, int k, std::int64_t token) const {
    const std::int32_t rank = routing_.rank_of(experts[k]);
    const std::int64_t row = routing_.flat_row(rank, token);
    int first = 0;
    while (experts[first] != experts[k]) ++first;
    return row < 0 ? 0.0F
                   : Base::Memory::load(Base::side_values(rank) + row * routing_.topk() + first);
  }
};

/// kExpertMajor: one term per expert, or one per rank whose rows come through the ring.
template <primitives::Executor Exec, primitives::Coop G>
class ExpertTerms : public PullTerms<Exec, G> {
  using Base = PullTerms<Exec, G>;
  using Base::group_;
  using Base::op_;
  using Base::params_;
  using Base::routing_;
  using Base::scratch_;

 public:
  using Base::Base;

  /// Rows of tokens [first, first + count), count <= kBatchTokens.
  EP_HOST_DEVICE void find(std::int64_t first, int count, bool has_ring) const {
    group_.sync();  // all threads are done with the tokens before
    find_choices(first, count);
    if (has_ring) find_pairs(first, count);
    group_.sync();
    sort_terms(count);
    group_.sync();
  }

  /// Terms of token number i of those: by rank in ascending order; within a rank in k order.
  EP_HOST_DEVICE void add_terms(typename Exec::RowReducer::Sum& sum, int i) const {
    const int topk = routing_.topk();
    const std::byte* const* rows = scratch_.rows + i * topk;
    const PullScratch::Hop* hops = scratch_.hops + i * topk;
    for (int term = 0; term < topk; ++term) {
      if (rows[term] != nullptr) sum.add(rows[term], hops[term].weight);
      if (term + 1 == topk || hops[term + 1].rank != hops[term].rank) sum.end_hop();
    }
  }

  /// The router's gradient of k; repeats get the same. Precondition: experts[k] >= 0.
  EP_HOST_DEVICE float side_value(const std::int32_t* experts, int k, std::int64_t token) const {
    const std::int64_t row = routing_.expert_row(experts[k], token);
    return row < 0 ? 0.0F
                   : Base::Memory::load(Base::side_values(routing_.rank_of(experts[k])) + row);
  }

 private:
  EP_HOST_DEVICE void find_pairs(std::int64_t first, int count) const {
    const int num_ranks = op_->num_ranks();
    primitives::for_each_strided(group_, count * num_ranks, [&](std::int64_t i) {
      const int rank = static_cast<int>(i) % num_ranks;
      scratch_.pairs[i] =
          scratch_.owners[rank].uses_ring != 0 ? routing_.pair_at(rank, first + i / num_ranks) : -1;
    });
  }

  EP_HOST_DEVICE void find_choices(std::int64_t first, int count) const {
    const int topk = routing_.topk();
    const std::int32_t* experts = routing_.experts_of(first);
    primitives::for_each_strided(group_, count * topk,
                                 [&](std::int64_t i) { scratch_.choices[i].expert = experts[i]; });
    group_.sync();
    primitives::for_each_strided(group_, count * topk, [&](std::int64_t i) {
      const int k = static_cast<int>(i) % topk;
      find_choice(scratch_.choices + i - k, k, first + i / topk);
    });
  }

  /// Completes choice k of a token.
  EP_HOST_DEVICE void find_choice(PullScratch::Choice* choices, int k, std::int64_t token) const {
    PullScratch::Choice& choice = choices[k];
    choice.rank = routing_.rank_of(choice.expert);
    choice.row = -1;
    if (choice.expert < 0) return;
    for (int earlier = 0; earlier < k; ++earlier) {
      if (choices[earlier].expert == choice.expert) return;
    }
    const std::int64_t row = routing_.row_in(routing_.expert_column(choice.expert), token);
    if (row < scratch_.owners[choice.rank].capacity) choice.row = static_cast<std::int32_t>(row);
    choice.weight = 1.0F;
    if (!params_->sum.weighted) return;
    const StridedInput& weights = params_->weights.input;
    const float* of_token = static_cast<const float*>(weights.data) + token * weights.row_stride;
    choice.weight = sum_of_repeats(
        routing_.topk(), k, [&](int later) { return choices[later].expert == choice.expert; },
        [&](int at) { return of_token[at * weights.col_stride]; });
  }

  EP_HOST_DEVICE void sort_terms(int count) const {
    const int topk = routing_.topk();
    primitives::for_each_strided(group_, count * topk, [&](std::int64_t i) {
      const int k = static_cast<int>(i) % topk;
      const PullScratch::Choice* choices = scratch_.choices + i - k;
      const PullScratch::Choice choice = choices[k];
      int place = 0;
      bool is_first_here = true;  // of the rows at its rank
      for (int other = 0; other < topk; ++other) {
        const PullScratch::Choice& before = choices[other];
        if (before.rank > choice.rank || (before.rank == choice.rank && other >= k)) continue;
        ++place;
        is_first_here &= before.rank != choice.rank || before.row < 0;
      }
      const std::int64_t at = i - k + place;
      scratch_.rows[at] = nullptr;
      scratch_.hops[at] = {choice.rank, 1.0F};
      if (choice.row < 0) return;
      const PullScratch::Owner& owner = scratch_.owners[choice.rank];
      if (owner.uses_ring == 0) {
        scratch_.rows[at] = Base::row_of(owner, choice.row);
        scratch_.hops[at].weight = choice.weight;
      } else if (is_first_here) {
        // The owner has summed up the pair's rows.
        scratch_.rows[at] =
            Base::ring_row(choice.rank, scratch_.pairs[i / topk * op_->num_ranks() + choice.rank]);
      }
    });
  }
};

}  // namespace ep::intranode
