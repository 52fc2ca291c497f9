// SPDX-License-Identifier: Apache-2.0
// Steps of the route role once the counts of all ranks are here: where rows begin, what is needed.
#pragma once

#include "intranode/routing_steps.h"

#include <cstdint>

namespace ep::intranode {

/// Waits for the counts of columns [first, first + count) of every rank; take(column, rank, rows)
/// is called for each: a column's by one thread, in ascending rank. False if the group gave up.
template <primitives::Executor Exec, primitives::Coop G, class Take>
EP_HOST_DEVICE bool await_counts(
    G group, const primitives::OpContext<Exec>& op, int first, int count, Take take) {
  const primitives::TaggedWords words{.first = op.counts_from(0) + first,
                                      .words_per_rank = count,
                                      .stride = op.control().shape.max_columns(),
                                      .num_ranks = op.num_ranks()};
  return await_words(group, op, primitives::WaitSite::kCounts, words,
                     [&](int word, int rank, std::uint32_t value) {
                       take(first + word, rank, static_cast<std::int32_t>(value));
                     });
}

/// What the ranks before this one send of a column, and all of them.
struct ColumnSum {
  std::int32_t before = 0;
  std::int32_t total = 0;

  EP_HOST_DEVICE void add(int rank, int own_rank, std::int32_t rows) {
    if (rank == 0) *this = {};
    if (rank < own_rank) before += rows;
    total += rows;
  }
};

/// Waits for the pairs of all ranks: where this rank's own begin at each peer, and, into
/// scratch.pairs, how many each source sends here. False if the group gave up.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE bool await_pairs(G group,
                                const primitives::OpContext<Exec>& op,
                                const RoutingView<Exec>& routing,
                                const RouteScratch& scratch) {
  using Memory = typename Exec::Memory;
  ColumnSum sum;
  const auto take = [&](int column, int rank, std::int32_t rows) {
    sum.add(rank, op.rank(), rows);
    if (column == op.rank()) scratch.pairs[rank] = rows;
    if (rank != op.rank()) return;
    Memory::store(routing.counts() + column, rows);
    Memory::store(routing.first_rows() + column, std::int64_t{sum.before});
  };
  return await_counts(group, op, 0, op.num_ranks(), take);
}

/// Waits for the rows of all experts: scratch.totals, and scratch.before of those that earlier
/// sources send, by expert. False if the group gave up.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE bool await_experts(G group,
                                  const primitives::OpContext<Exec>& op,
                                  const RoutingView<Exec>& routing,
                                  const RouteScratch& scratch) {
  ColumnSum sum;
  const int first = routing.expert_column(0);
  const auto take = [&](int column, int rank, std::int32_t rows) {
    sum.add(rank, op.rank(), rows);
    if (rank + 1 != op.num_ranks()) return;
    scratch.totals[column - first] = sum.total;
    scratch.before[column - first] = sum.before;
  };
  return await_counts(group, op, first, routing.shape().num_experts, take);
}

/// The pairs of each source, in a row. Returns the pairs that this rank receives. Precondition:
/// await_pairs.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE std::int64_t resolve_pairs(G group,
                                          const primitives::OpContext<Exec>& op,
                                          const RoutingView<Exec>& routing,
                                          const RouteScratch& scratch) {
  using Memory = typename Exec::Memory;
  std::int64_t num_pairs = 0;
  for (int first = 0; first < op.num_ranks(); first += group.size()) {
    const int rank = first + group.thread_rank();
    const std::int64_t pairs = rank < op.num_ranks() ? scratch.pairs[rank] : 0;
    const std::int64_t through = num_pairs + group.inclusive_sum(pairs);
    if (rank < op.num_ranks()) {
      Memory::store(routing.pairs_from() + rank, pairs);
      Memory::store(routing.pair_bases() + rank, through - pairs);
    }
    num_pairs = group.broadcast_last(through);
  }
  return num_pairs;
}

/// Rows of this rank's experts, before any is dropped. Precondition: await_experts.
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
                        std::int64_t{scratch.totals[expert]});
  });
}

/// kExpertMajor: the groups of a rank's experts one after another, padded: where this rank's rows
/// begin in each; for its own experts also the offsets. Returns the rows of the rank. Precondition:
/// await_experts.
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
        is_there ? layout::round_up(scratch.totals[expert], params.alignment) : 0;
    const std::int64_t through = offset + group.inclusive_sum(padded);
    if (is_there) {
      const std::int64_t begin = through - padded;
      Memory::store(routing.first_rows() + routing.expert_column(expert),
                    begin + scratch.before[expert]);
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
  for (int rank = 0; rank < op.num_ranks(); ++rank) {
    const std::int64_t rows_there = place_experts_of(group, op, routing, scratch, rank);
    if (rank == op.rank()) num_rows = rows_there;
  }
  store_expert_counts(group, op, routing, scratch);
  return num_rows;
}

/// Waits for the counts of all ranks, and does everything that they decide. False if the group gave
/// up.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE bool resolve_counts(G group,
                                   const primitives::OpContext<Exec>& op,
                                   const RoutingView<Exec>& routing,
                                   const RouteScratch& scratch,
                                   NeededSizes& needed) {
  const bool has_expert_rows = routing.shape().has_expert_rows;
  if (!await_pairs(group, op, routing, scratch)) return false;
  if (has_expert_rows && !await_experts(group, op, routing, scratch)) return false;
  needed.pairs = resolve_pairs(group, op, routing, scratch);
  needed.rows = has_expert_rows ? resolve_experts(group, op, routing, scratch) : needed.pairs;
  if (group.thread_rank() != 0) return true;
  std::int64_t* sizes = routing.sizes();
  Exec::Memory::store(sizes + static_cast<int>(layout::Size::kNeededRows), needed.rows);
  Exec::Memory::store(sizes + static_cast<int>(layout::Size::kPairs), needed.pairs);
  Exec::Memory::store(sizes + static_cast<int>(layout::Size::kIsRefused), std::int64_t{0});
  return true;
}

/// Sizes of a dispatch that the ranks refused: no rows, and a mark for those who use its handle.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void clear_sizes(G group, const RoutingView<Exec>& routing) {
  primitives::for_each_strided(group, layout::kNumSizes, [&](std::int64_t i) {
    const bool is_mark = i == static_cast<std::int64_t>(layout::Size::kIsRefused);
    Exec::Memory::store(routing.sizes() + i, std::int64_t{is_mark ? 1 : 0});
  });
}

/// What this rank keeps of the rows that it needs.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void store_kept_rows(G group,
                                    const RoutingView<Exec>& routing,
                                    std::int64_t needed_rows,
                                    std::int64_t capacity) {
  if (group.thread_rank() != 0) return;
  std::int64_t* sizes = routing.sizes();
  Exec::Memory::store(sizes + static_cast<int>(layout::Size::kRows),
                      needed_rows < capacity ? needed_rows : capacity);
  Exec::Memory::store(sizes + static_cast<int>(layout::Size::kHasOverflow),
                      std::int64_t{needed_rows > capacity ? 1 : 0});
}

}  // namespace ep::intranode
