// SPDX-License-Identifier: Apache-2.0
// Steps of the route role: count where the tokens go, number the rows, tell all other ranks.
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

  EP_HOST_DEVICE RouteScratch(const primitives::Lane& lane, const layout::TableShape& shape)
      : masks(layout::array_at<std::uint32_t>(lane.scratch, 0)),
        histogram(layout::array_at<std::int32_t>(lane.scratch, mask_bytes(shape))) {}

  EP_HOST_DEVICE static std::int64_t mask_bytes(const layout::TableShape& shape) {
    return layout::round_up(std::int64_t{4} * shape.num_columns(), layout::kLineBytes);
  }
  EP_HOST_DEVICE static std::int64_t bytes(const layout::TableShape& shape) {
    return 2 * mask_bytes(shape);
  }
};

/// Loads that a thread keeps in flight where their latency would add up.
inline constexpr int kLoadBatch = 4;

/// One entry of topk_idx, not checked.
EP_HOST_DEVICE inline std::int64_t raw_expert(const DispatchParams& params,
                                              std::int64_t token,
                                              int k) {
  const StridedInput& idx = params.topk_idx;
  const std::int64_t at = token * idx.row_stride + k * idx.col_stride;
  return params.idx_bytes == 8 ? static_cast<const std::int64_t*>(idx.data)[at]
                               : static_cast<const std::int32_t*>(idx.data)[at];
}

/// A valid entry, or -1; the position of an invalid one is remembered and refused later.
template <primitives::Executor Exec>
EP_HOST_DEVICE std::int32_t checked_expert(const primitives::OpContext<Exec>& op,
                                           const layout::TableShape& shape,
                                           std::int64_t expert,
                                           std::int64_t position) {
  if (expert >= -1 && expert < shape.num_experts) return static_cast<std::int32_t>(expert);
  // The lowest position wins: ~position is the largest value; 0 stands for none.
  Exec::Memory::max_relaxed_gpu(&op.local()->rejected.value, ~static_cast<std::uint64_t>(position));
  return -1;
}

/// Entries [first_k, first_k + kLoadBatch) of a token into the table of expert ids, and their
/// columns' bits.
template <primitives::Executor Exec>
EP_HOST_DEVICE void mask_experts(const primitives::OpContext<Exec>& op,
                                 const DispatchParams& params,
                                 std::int64_t token,
                                 int first_k,
                                 std::uint32_t* masks) {
  const RoutingView<Exec> routing(params.routing);
  const layout::TableShape& shape = routing.shape();
  const std::uint32_t bit = 1U << (token % layout::kGroupTokens);
  std::int64_t raw[kLoadBatch];
  for (int i = 0; i < kLoadBatch; ++i)
    raw[i] = first_k + i < shape.topk ? raw_expert(params, token, first_k + i) : -1;
  std::int32_t experts[kLoadBatch];
  std::int32_t ranks[kLoadBatch];
  for (int i = 0; i < kLoadBatch; ++i) {
    experts[i] = checked_expert(op, shape, raw[i], token * shape.topk + first_k + i);
    ranks[i] = routing.rank_of(experts[i]);
  }
  for (int i = 0; i < kLoadBatch; ++i) {
    if (first_k + i < shape.topk)
      Exec::Memory::store(routing.experts_of(token) + first_k + i, experts[i]);
    if (experts[i] < 0) continue;
    Exec::or_scratch(masks + ranks[i], bit);
    Exec::or_scratch(masks + routing.expert_column(experts[i]), bit);
  }
}

/// Masks of the group: bit i of masks[column] says that token i goes there. Fills the table of
/// expert ids as well.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void mask_group(G group,
                               const primitives::OpContext<Exec>& op,
                               const DispatchParams& params,
                               std::int64_t token_group,
                               std::uint32_t* masks) {
  const layout::TableShape& shape = params.routing.tables.shape;
  primitives::for_each_strided(group, shape.num_columns(),
                               [&](std::int64_t column) { masks[column] = 0; });
  group.sync();
  const std::int64_t first = token_group * layout::kGroupTokens;
  const std::int64_t left = shape.num_tokens - first;
  primitives::for_each_strided(group, left < layout::kGroupTokens ? left : layout::kGroupTokens,
                               [&](std::int64_t i) {
                                 for (int k = 0; k < shape.topk; k += kLoadBatch) {
                                   mask_experts(op, params, first + i, k, masks);
                                 }
                               });
  group.sync();
}

/// Counts all groups that this lane gets tickets for, into its scratch and this rank's table.
/// Returns how many.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE std::int64_t count_groups(G group,
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
  return num_counted;
}

/// Adds what this lane counted to this rank's counts, and completes its share of stage kCounted.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void add_counts(G group,
                               const primitives::OpContext<Exec>& op,
                               const layout::TableShape& shape,
                               const RouteScratch& scratch,
                               std::int64_t num_counted) {
  using Memory = typename Exec::Memory;
  auto* totals = op.template array<std::int32_t>(op.control().totals);
  primitives::for_each_strided(group, shape.num_columns(), [&](std::int64_t column) {
    // Relaxed: the stage's release covers the sums.
    if (scratch.histogram[column] > 0)
      Memory::add_relaxed_gpu(totals + column, scratch.histogram[column]);
  });
  stage_complete(group, op, layout::Stage::kCounted, num_counted);
}

/// Prefix sums over the groups of the columns that this lane gets tickets for. Precondition: stage
/// kCounted is complete.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void scan_columns(G group,
                                 const primitives::OpContext<Exec>& op,
                                 const DispatchParams& params) {
  const RoutingView<Exec> routing(params.routing);
  const layout::TableShape& shape = routing.shape();
  primitives::TicketStream<Exec> tickets(group, op.ticket(layout::Ticket::kScan),
                                         shape.num_mask_columns());
  std::int64_t num_scanned = 0;
  for (std::int64_t i = tickets.next(group); i >= 0; i = tickets.next(group), ++num_scanned) {
    const std::int64_t at = routing.mask_index(static_cast<int>(i), 0);
    Exec::scan_masks(group, routing.template array<std::uint32_t>(params.routing.tables.masks) + at,
                     routing.template array<std::int32_t>(params.routing.tables.prefixes) + at,
                     shape.num_groups());
  }
  stage_complete(group, op, layout::Stage::kScanned, num_scanned);
}

/// This rank's counts of all columns to every peer. Precondition: stage kCounted is complete.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void send_counts(G group, const primitives::OpContext<Exec>& op, int num_columns) {
  using Memory = typename Exec::Memory;
  const auto* totals = op.template array<std::int32_t>(op.control().totals);
  for (int first = group.thread_rank(); first < num_columns; first += kLoadBatch * group.size()) {
    std::int32_t counts[kLoadBatch];
    for (int i = 0; i < kLoadBatch; ++i) {
      const int column = first + i * group.size();
      counts[i] = column < num_columns ? Memory::load_relaxed_gpu(totals + column) : 0;
    }
    for (int peer = 0; peer < op.num_ranks(); ++peer) {
      std::int32_t* counts_there = op.counts_at(peer, op.rank());
      for (int i = 0; i < kLoadBatch; ++i) {
        const int column = first + i * group.size();
        if (column < num_columns) Memory::store(counts_there + column, counts[i]);
      }
    }
  }
}

}  // namespace ep::intranode
