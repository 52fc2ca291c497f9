// SPDX-License-Identifier: Apache-2.0
// Steps of the route role: count where the tokens go, number the rows, resolve them against all
// other ranks.
#pragma once

#include "intranode/protocol_steps.h"
#include "intranode/routing_view.h"
#include "primitives/ticket.h"

#include <cstddef>
#include <cstdint>

namespace ep::intranode {

/// Scratch of a lane of the route role.
struct RouteScratch {
  std::uint32_t* masks;     // [columns], of the group at hand
  std::int32_t* histogram;  // [columns], of all groups of this lane
  std::int64_t* offsets;    // [num_ranks]

  EP_HOST_DEVICE RouteScratch(const primitives::Lane& lane, const layout::TableShape& shape)
      : masks(layout::array_at<std::uint32_t>(lane.scratch, 0)),
        histogram(layout::array_at<std::int32_t>(lane.scratch, mask_bytes(shape))),
        offsets(layout::array_at<std::int64_t>(lane.scratch, 2 * mask_bytes(shape))) {}

  EP_HOST_DEVICE static std::int64_t mask_bytes(const layout::TableShape& shape) {
    return layout::round_up(std::int64_t{4} * shape.num_columns(), layout::kLineBytes);
  }
  EP_HOST_DEVICE static std::int64_t bytes(const layout::TableShape& shape) {
    return 2 * mask_bytes(shape) + std::int64_t{8} * shape.num_ranks;
  }
};

/// One entry of topk_idx; the position of an invalid one is remembered and refused later.
template <primitives::Executor Exec>
EP_HOST_DEVICE std::int32_t read_expert(const primitives::OpContext<Exec>& op,
                                        const DispatchParams& params,
                                        std::int64_t token,
                                        int k) {
  const StridedInput& idx = params.topk_idx;
  const std::int64_t at = token * idx.row_stride + k * idx.col_stride;
  const std::int64_t expert = params.idx_bytes == 8
                                  ? static_cast<const std::int64_t*>(idx.data)[at]
                                  : static_cast<const std::int32_t*>(idx.data)[at];
  const layout::TableShape& shape = params.routing.tables.shape;
  if (expert >= -1 && expert < shape.num_experts) return static_cast<std::int32_t>(expert);
  // The lowest position wins: ~position is the largest value; 0 stands for none.
  const auto position = static_cast<std::uint64_t>(token * shape.topk + k);
  Exec::Memory::max_relaxed_gpu(&op.local()->rejected.value, ~position);
  return -1;
}

/// Masks of the group: bit i of masks[column] says that token i goes there. Fills the table of
/// expert ids as well.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void mask_group(G group,
                               const primitives::OpContext<Exec>& op,
                               const DispatchParams& params,
                               std::int64_t token_group,
                               std::uint32_t* masks) {
  const RoutingView<Exec> routing(params.routing);
  const layout::TableShape& shape = routing.shape();
  primitives::for_each_strided(group, shape.num_columns(),
                               [&](std::int64_t column) { masks[column] = 0; });
  group.sync();
  const std::int64_t first = token_group * layout::kGroupTokens;
  const std::int64_t left = shape.num_tokens - first;
  primitives::for_each_strided(
      group, left < layout::kGroupTokens ? left : layout::kGroupTokens, [&](std::int64_t i) {
        const std::uint32_t bit = 1U << i;
        std::int32_t* experts = routing.experts_of(first + i);
        for (int k = 0; k < shape.topk; ++k) {
          const std::int32_t expert = read_expert(op, params, first + i, k);
          Exec::Memory::store(experts + k, expert);
          if (expert < 0) continue;
          Exec::or_scratch(masks + params.routing.rank_of[expert], bit);
          Exec::or_scratch(masks + routing.expert_column(expert), bit);
        }
      });
  group.sync();
}

/// Counts all groups that this lane gets tickets for.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void count_groups(G group,
                                 const primitives::OpContext<Exec>& op,
                                 const DispatchParams& params,
                                 const RouteScratch& scratch) {
  using Memory = typename Exec::Memory;
  const RoutingView<Exec> routing(params.routing);
  const layout::TableShape& shape = routing.shape();
  auto* table = routing.template array<std::uint32_t>(params.routing.tables.masks);
  primitives::for_each_strided(group, shape.num_columns(),
                               [&](std::int64_t column) { scratch.histogram[column] = 0; });
  primitives::TicketStream<Exec> tickets(group, op.ticket(layout::Ticket::kCount),
                                         shape.num_groups());
  std::int64_t num_counted = 0;
  for (std::int64_t i = tickets.next(group); i >= 0; i = tickets.next(group), ++num_counted) {
    mask_group(group, op, params, i, scratch.masks);
    primitives::for_each_strided(group, shape.num_columns(), [&](std::int64_t column) {
      const std::uint32_t mask = scratch.masks[column];
      scratch.histogram[column] += Exec::popcount(mask);
      if (column < shape.num_mask_columns()) {
        Memory::store(table + routing.mask_index(static_cast<int>(column), i), mask);
      }
    });
    group.sync();
  }
  auto* totals = op.template array<std::int32_t>(op.control().totals);
  primitives::for_each_strided(group, shape.num_columns(), [&](std::int64_t column) {
    // Relaxed: the stage's release covers the sums.
    if (scratch.histogram[column] > 0)
      Memory::add_relaxed_gpu(totals + column, scratch.histogram[column]);
  });
  stage_complete(group, op, layout::Stage::kCounted, num_counted);
}

/// Prefix sums over the groups of the columns that this lane gets tickets for. False if the group
/// gave up.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE bool scan_columns(G group,
                                 const primitives::OpContext<Exec>& op,
                                 const DispatchParams& params) {
  const RoutingView<Exec> routing(params.routing);
  const layout::TableShape& shape = routing.shape();
  primitives::TicketStream<Exec> tickets(group, op.ticket(layout::Ticket::kScan),
                                         shape.num_mask_columns());
  if (!stage_wait(group, op, layout::Stage::kCounted, shape.num_groups())) return false;
  std::int64_t num_scanned = 0;
  for (std::int64_t i = tickets.next(group); i >= 0; i = tickets.next(group), ++num_scanned) {
    const std::int64_t at = routing.mask_index(static_cast<int>(i), 0);
    Exec::scan_masks(group, routing.template array<std::uint32_t>(params.routing.tables.masks) + at,
                     routing.template array<std::int32_t>(params.routing.tables.prefixes) + at,
                     shape.num_groups());
  }
  stage_complete(group, op, layout::Stage::kScanned, num_scanned);
  return true;
}

/// Rows of the column that sources [begin, end) send.
template <primitives::Executor Exec>
EP_HOST_DEVICE std::int64_t column_sum(const primitives::OpContext<Exec>& op,
                                       int column,
                                       int begin,
                                       int end) {
  std::int64_t sum = 0;
  for (int src = begin; src < end; ++src)
    sum += Exec::Memory::load(op.counts_at(op.rank(), src) + column);
  return sum;
}

/// Pairs: how many each source sends to this rank, and where this rank's own begin at each peer.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void resolve_pairs(G group,
                                  const primitives::OpContext<Exec>& op,
                                  const RoutingView<Exec>& routing) {
  using Memory = typename Exec::Memory;
  const int num_ranks = op.num_ranks();
  primitives::for_each_strided(group, num_ranks, [&](std::int64_t i) {
    const int rank = static_cast<int>(i);
    Memory::store(routing.first_rows() + rank, column_sum(op, rank, 0, op.rank()));
    Memory::store(routing.pair_bases() + rank, column_sum(op, op.rank(), 0, rank));
    Memory::store(routing.pairs_from() + rank,
                  std::int64_t{Memory::load(op.counts_at(op.rank(), rank) + op.rank())});
    Memory::store(routing.source_tokens() + rank,
                  std::int64_t{(*op.op_at(op.rank(), rank))[layout::OpField::kNumTokens]});
  });
  primitives::for_each_strided(group, routing.shape().num_columns(), [&](std::int64_t column) {
    Memory::store(routing.counts() + column,
                  Memory::load(op.counts_at(op.rank(), op.rank()) + column));
  });
  group.sync();
}

/// Expert groups of every rank, padded: where this rank's rows begin in each; counts and offsets of
/// this rank's experts.
template <primitives::Executor Exec>
EP_HOST_DEVICE void resolve_experts(const primitives::OpContext<Exec>& op,
                                    const RoutingView<Exec>& routing,
                                    std::int64_t* offsets) {
  using Memory = typename Exec::Memory;
  const RoutingParams& params = *routing.params;
  auto* expert_counts = routing.template array<std::int64_t>(params.tables.expert_counts);
  auto* expert_offsets = routing.template array<std::int64_t>(params.tables.expert_offsets);
  for (int rank = 0; rank < op.num_ranks(); ++rank) offsets[rank] = 0;
  for (int expert = 0; expert < routing.shape().num_experts; ++expert) {
    const int column = routing.expert_column(expert);
    const int rank = params.rank_of[expert];
    const std::int64_t total = column_sum(op, column, 0, op.num_ranks());
    if (routing.shape().has_expert_rows) {
      Memory::store(routing.first_rows() + column,
                    offsets[rank] + column_sum(op, column, 0, op.rank()));
    }
    if (rank == op.rank()) {
      Memory::store(expert_counts + params.local_of[expert], total);
      Memory::store(expert_offsets + params.local_of[expert], offsets[rank]);
    }
    offsets[rank] += layout::round_up(total, params.alignment);
  }
  Memory::store(expert_offsets + params.num_local_experts, offsets[op.rank()]);
}

/// Rows that this rank needs, whatever its capacity.
template <primitives::Executor Exec>
EP_HOST_DEVICE void resolve_sizes(const primitives::OpContext<Exec>& op,
                                  const RoutingView<Exec>& routing) {
  using Memory = typename Exec::Memory;
  const std::int64_t num_pairs = column_sum(op, op.rank(), 0, op.num_ranks());
  const auto* expert_offsets =
      routing.template array<std::int64_t>(routing.params->tables.expert_offsets);
  const std::int64_t needed = routing.shape().has_expert_rows
                                  ? Memory::load(expert_offsets + routing.params->num_local_experts)
                                  : num_pairs;
  Memory::store(routing.sizes() + static_cast<int>(layout::Size::kNeededRows), needed);
  Memory::store(routing.sizes() + static_cast<int>(layout::Size::kPairs), num_pairs);
  Memory::store(routing.sizes() + static_cast<int>(layout::Size::kIsRefused), std::int64_t{0});
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
                                       const RoutingView<Exec>& routing) {
  using Memory = typename Exec::Memory;
  primitives::for_each_strided(group, op.num_ranks(), [&](std::int64_t rank) {
    const std::uint32_t capacity =
        Memory::load(&op.block_at(op.rank(), static_cast<int>(rank))->capacity_rows);
    Memory::store(routing.capacities() + rank, std::int64_t{capacity});
  });
  group.sync();
  if (group.thread_rank() == 0) {
    const std::int64_t needed =
        Memory::load(routing.sizes() + static_cast<int>(layout::Size::kNeededRows));
    const std::int64_t capacity = Memory::load(routing.capacities() + op.rank());
    Memory::store(routing.sizes() + static_cast<int>(layout::Size::kRows),
                  needed < capacity ? needed : capacity);
    Memory::store(routing.sizes() + static_cast<int>(layout::Size::kHasOverflow),
                  std::int64_t{needed > capacity ? 1 : 0});
  }
  group.sync();
}

}  // namespace ep::intranode
