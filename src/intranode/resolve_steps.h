// SPDX-License-Identifier: Apache-2.0
// Steps of the route role once the counts of all ranks are here: where rows begin, what is needed.
#pragma once

#include "intranode/routing_steps.h"

#include <cstdint>

namespace ep::intranode {

/// Rows of the column that sources [begin, end) send.
template <primitives::Executor Exec>
EP_HOST_DEVICE std::int64_t column_sum(const primitives::OpContext<Exec>& op,
                                       int column,
                                       int begin,
                                       int end) {
  std::int64_t sum = 0;
  for (int src = begin; src < end; ++src) sum += Exec::Memory::load(op.counts_from(src) + column);
  return sum;
}

/// Pairs: how many each source sends to this rank, and where this rank's own begin at each peer.
/// Returns the pairs that this rank receives.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE std::int64_t resolve_pairs(G group,
                                          const primitives::OpContext<Exec>& op,
                                          const RoutingView<Exec>& routing) {
  using Memory = typename Exec::Memory;
  std::int64_t num_pairs = 0;
  for (int first = 0; first < op.num_ranks(); first += group.size()) {
    const int rank = first + group.thread_rank();
    const bool is_rank = rank < op.num_ranks();
    const std::int64_t pairs = is_rank ? Memory::load(op.counts_from(rank) + op.rank()) : 0;
    const std::int64_t through = num_pairs + group.inclusive_sum(pairs);
    if (is_rank) {
      Memory::store(routing.first_rows() + rank, column_sum(op, rank, 0, op.rank()));
      Memory::store(routing.pair_bases() + rank, through - pairs);
      Memory::store(routing.pairs_from() + rank, pairs);
      Memory::store(routing.source_tokens() + rank,
                    std::int64_t{(*op.op_from(rank))[layout::OpField::kNumTokens]});
      Memory::store(routing.counts() + rank, Memory::load(op.counts_from(op.rank()) + rank));
    }
    num_pairs = group.broadcast_last(through);
  }
  return num_pairs;
}

/// Rows of every expert, and how many of them earlier sources send: scratch.masks and
/// scratch.histogram by expert.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void sum_experts(G group,
                                const primitives::OpContext<Exec>& op,
                                const RoutingView<Exec>& routing,
                                const RouteScratch& scratch) {
  const int num_experts = routing.shape().num_experts;
  for (int first = group.thread_rank(); first < num_experts; first += kLoadBatch * group.size()) {
    std::int32_t totals[kLoadBatch] = {};
    std::int32_t earlier[kLoadBatch] = {};
    for (int src = 0; src < op.num_ranks(); ++src) {
      const std::int32_t* counts = op.counts_from(src);
      for (int i = 0; i < kLoadBatch; ++i) {
        const int expert = first + i * group.size();
        if (expert >= num_experts) continue;
        totals[i] += Exec::Memory::load(counts + routing.expert_column(expert));
        if (src + 1 == op.rank()) earlier[i] = totals[i];
      }
    }
    for (int i = 0; i < kLoadBatch; ++i) {
      const int expert = first + i * group.size();
      if (expert >= num_experts) continue;
      scratch.masks[expert] = static_cast<std::uint32_t>(totals[i]);
      scratch.histogram[expert] = earlier[i];
    }
  }
  group.sync();
}

/// Rows of this rank's experts, before any is dropped. Precondition: sum_experts.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void store_expert_counts(G group,
                                        const primitives::OpContext<Exec>& op,
                                        const RoutingView<Exec>& routing,
                                        const RouteScratch& scratch) {
  const RoutingParams& params = *routing.params;
  auto* expert_counts = routing.template array<std::int64_t>(params.tables.expert_counts);
  primitives::for_each_strided(group, routing.shape().num_experts, [&](std::int64_t expert) {
    if (params.rank_of[expert] != op.rank()) return;
    Exec::Memory::store(expert_counts + params.local_of[expert],
                        std::int64_t{scratch.masks[expert]});
  });
}

/// kExpertMajor: the groups of a rank's experts one after another, padded: where this rank's rows
/// begin in each; for its own experts also the offsets. Returns the rows of the rank. Precondition:
/// sum_experts.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE std::int64_t place_experts_of(G group,
                                             const primitives::OpContext<Exec>& op,
                                             const RoutingView<Exec>& routing,
                                             const RouteScratch& scratch,
                                             int rank) {
  using Memory = typename Exec::Memory;
  const RoutingParams& params = *routing.params;
  auto* expert_offsets = routing.template array<std::int64_t>(params.tables.expert_offsets);
  std::int64_t offset = 0;
  for (int first = 0; first < routing.shape().num_experts; first += group.size()) {
    const int expert = first + group.thread_rank();
    // Local ids ascend with the global ones, so the groups lie in the order of this loop.
    const bool is_there = expert < routing.shape().num_experts && params.rank_of[expert] == rank;
    const std::int64_t padded =
        is_there ? layout::round_up(scratch.masks[expert], params.alignment) : 0;
    const std::int64_t through = offset + group.inclusive_sum(padded);
    if (is_there) {
      const std::int64_t begin = through - padded;
      Memory::store(routing.first_rows() + routing.expert_column(expert),
                    begin + scratch.histogram[expert]);
      if (rank == op.rank()) Memory::store(expert_offsets + params.local_of[expert], begin);
    }
    offset = group.broadcast_last(through);
  }
  if (rank == op.rank() && group.thread_rank() == 0)
    Memory::store(expert_offsets + params.num_local_experts, offset);
  return offset;
}

/// What this rank needs, whatever its capacity.
struct NeededSizes {
  std::int64_t rows = 0;
  std::int64_t pairs = 0;
};

/// Expert groups of all ranks. Returns the rows of this one.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE std::int64_t resolve_experts(G group,
                                            const primitives::OpContext<Exec>& op,
                                            const RoutingView<Exec>& routing,
                                            const RouteScratch& scratch) {
  std::int64_t num_rows = 0;
  sum_experts(group, op, routing, scratch);
  for (int rank = 0; rank < op.num_ranks(); ++rank) {
    const std::int64_t rows_there = place_experts_of(group, op, routing, scratch, rank);
    if (rank == op.rank()) num_rows = rows_there;
  }
  store_expert_counts(group, op, routing, scratch);
  return num_rows;
}

/// Everything that the counts of all ranks decide.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE NeededSizes resolve_counts(G group,
                                          const primitives::OpContext<Exec>& op,
                                          const RoutingView<Exec>& routing,
                                          const RouteScratch& scratch) {
  using Memory = typename Exec::Memory;
  NeededSizes needed;
  needed.pairs = resolve_pairs(group, op, routing);
  needed.rows =
      routing.shape().has_expert_rows ? resolve_experts(group, op, routing, scratch) : needed.pairs;
  if (group.thread_rank() == 0) {
    std::int64_t* sizes = routing.sizes();
    Memory::store(sizes + static_cast<int>(layout::Size::kNeededRows), needed.rows);
    Memory::store(sizes + static_cast<int>(layout::Size::kPairs), needed.pairs);
    Memory::store(sizes + static_cast<int>(layout::Size::kIsRefused), std::int64_t{0});
  }
  group.sync();
  return needed;
}

/// Sizes of a dispatch that the ranks refused: no rows, and a mark for those who use its handle.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void clear_sizes(G group, const RoutingView<Exec>& routing) {
  primitives::for_each_strided(group, layout::kNumSizes, [&](std::int64_t i) {
    const bool is_mark = i == static_cast<std::int64_t>(layout::Size::kIsRefused);
    Exec::Memory::store(routing.sizes() + i, std::int64_t{is_mark ? 1 : 0});
  });
}

/// Capacities of all ranks, known once their blocks are.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void resolve_capacities(G group,
                                       const primitives::OpContext<Exec>& op,
                                       const RoutingView<Exec>& routing,
                                       std::int64_t needed_rows) {
  using Memory = typename Exec::Memory;
  const auto capacity_of = [&](std::int64_t rank) {
    return std::int64_t{Memory::load(&op.block_from(static_cast<int>(rank))->capacity_rows)};
  };
  const std::int64_t capacity = capacity_of(op.rank());
  primitives::for_each_strided(group, op.num_ranks(), [&](std::int64_t rank) {
    Memory::store(routing.capacities() + rank, capacity_of(rank));
  });
  if (group.thread_rank() == 0) {
    Memory::store(routing.sizes() + static_cast<int>(layout::Size::kRows),
                  needed_rows < capacity ? needed_rows : capacity);
    Memory::store(routing.sizes() + static_cast<int>(layout::Size::kHasOverflow),
                  std::int64_t{needed_rows > capacity ? 1 : 0});
  }
  group.sync();
}

}  // namespace ep::intranode
