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
  // While it counts.
  std::uint32_t* masks;     // [columns], of the group at hand
  std::int32_t* histogram;  // [experts], of all groups of this lane
  std::int32_t* owners;     // [experts]: RoutingParams::rank_of, which each entry of topk_idx needs
  // While it resolves.
  std::int32_t* pairs;   // [ranks]
  std::int32_t* totals;  // [experts]
  std::int32_t* before;  // [experts]

  EP_HOST_DEVICE RouteScratch(const primitives::Lane& lane, const layout::TableShape& shape)
      : masks(layout::array_at<std::uint32_t>(lane.scratch, 0)),
        histogram(layout::array_at<std::int32_t>(lane.scratch, part_bytes(shape))),
        owners(layout::array_at<std::int32_t>(lane.scratch, 2 * part_bytes(shape))),
        pairs(layout::array_at<std::int32_t>(lane.scratch, 0)),
        totals(histogram),
        before(owners) {}

  EP_HOST_DEVICE static std::int64_t part_bytes(const layout::TableShape& shape) {
    return layout::round_up(std::int64_t{4} * shape.num_columns(), layout::kLineBytes);
  }
  EP_HOST_DEVICE static std::int64_t bytes(const layout::TableShape& shape) {
    return 3 * part_bytes(shape);
  }
};

/// One entry of topk_idx, not checked.
EP_HOST_DEVICE inline std::int64_t raw_expert(const DispatchParams& params,
                                              std::int64_t token,
                                              int k) {
  const StridedInput& idx = params.topk_idx;
  const std::int64_t at = token * idx.row_stride + k * idx.col_stride;
  return params.input_idx_bytes == 8 ? static_cast<const std::int64_t*>(idx.data)[at]
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

/// Entries of topk_idx that a thread loads at once: they come from far.
inline constexpr int kIdxBatch = 8;

/// Entries [first_k, first_k + kIdxBatch) of a token into the table of expert ids, and their
/// columns' bits.
template <primitives::Executor Exec>
EP_HOST_DEVICE void mask_experts(const primitives::OpContext<Exec>& op,
                                 const DispatchParams& params,
                                 std::int64_t token,
                                 int first_k,
                                 const RouteScratch& scratch) {
  const RoutingView<Exec> routing(params.routing);
  const layout::TableShape& shape = routing.shape();
  const std::uint32_t bit = 1U << (token % layout::kGroupTokens);
  std::int64_t raw[kIdxBatch];
  for (int i = 0; i < kIdxBatch; ++i)
    raw[i] = first_k + i < shape.topk ? raw_expert(params, token, first_k + i) : -1;
  for (int i = 0; i < kIdxBatch; ++i) {
    const std::int32_t expert = checked_expert(op, shape, raw[i], token * shape.topk + first_k + i);
    if (first_k + i < shape.topk)
      Exec::Memory::store(routing.experts_of(token) + first_k + i, expert);
    if (expert < 0) continue;
    Exec::or_scratch(scratch.masks + scratch.owners[expert], bit);
    Exec::or_scratch(scratch.masks + routing.expert_column(expert), bit);
  }
}

/// scratch.masks of the group: bit i of masks[column] says that token i goes there. Fills the table
/// of expert ids as well.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void mask_group(G group,
                               const primitives::OpContext<Exec>& op,
                               const DispatchParams& params,
                               std::int64_t token_group,
                               const RouteScratch& scratch) {
  const layout::TableShape& shape = params.routing.tables.shape;
  primitives::for_each_strided(group, shape.num_columns(),
                               [&](std::int64_t column) { scratch.masks[column] = 0; });
  group.sync();
  const std::int64_t first = token_group * layout::kGroupTokens;
  const std::int64_t left = shape.num_tokens - first;
  const std::int64_t count = left < layout::kGroupTokens ? left : layout::kGroupTokens;
  primitives::for_each_strided(group, count, [&](std::int64_t i) {
    EP_NO_UNROLL
    for (int k = 0; k < shape.topk; k += kIdxBatch) mask_experts(op, params, first + i, k, scratch);
  });
  group.sync();
}

/// The group's masks into the table; where experts have no masks, their rows into the histogram.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void keep_masks(G group,
                               const RoutingView<Exec>& routing,
                               std::int64_t token_group,
                               const RouteScratch& scratch) {
  const layout::TableShape& shape = routing.shape();
  auto* table = routing.template array<std::uint32_t>(routing.params->tables.masks);
  primitives::for_each_strided(group, shape.num_columns(), [&](std::int64_t i) {
    const int column = static_cast<int>(i);
    const std::uint32_t mask = scratch.masks[column];
    if (column < shape.num_mask_columns()) {
      Exec::Memory::store(table + routing.mask_index(column, token_group), mask);
    } else {
      scratch.histogram[column - shape.num_ranks] += Exec::popcount(mask);
    }
  });
  group.sync();
}

/// Rows of the experts of all groups of this lane, where experts have no masks: a sum that only the
/// receivers' counts wait for.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void tally_experts(G group,
                                  const primitives::OpContext<Exec>& op,
                                  const layout::TableShape& shape,
                                  const RouteScratch& scratch) {
  auto* totals = op.template array<std::int32_t>(op.control().totals);
  primitives::for_each_strided(group, shape.num_experts, [&](std::int64_t expert) {
    // Relaxed: the stage's release covers the sums.
    if (scratch.histogram[expert] > 0)
      Exec::Memory::add_relaxed_gpu(totals + expert, scratch.histogram[expert]);
  });
}

/// Counts all groups that this lane gets tickets for, into its scratch and this rank's table.
/// Returns how many.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE std::int64_t count_groups(G group,
                                         const primitives::OpContext<Exec>& op,
                                         const DispatchParams& params,
                                         const RouteScratch& scratch) {
  const RoutingView<Exec> routing(params.routing);
  const layout::TableShape& shape = routing.shape();
  primitives::TicketStream<Exec> tickets(group, op.ticket(layout::Ticket::kCount),
                                         shape.num_groups());
  const std::int64_t table_bytes = std::int64_t{4} * shape.num_experts;
  Exec::copy_bytes(group, layout::bytes_of(scratch.owners),
                   layout::bytes_of(params.routing.rank_of), table_bytes);
  Exec::zero_bytes(group, layout::bytes_of(scratch.histogram), table_bytes);
  std::int64_t num_counted = 0;
  EP_NO_UNROLL
  for (std::int64_t i = tickets.next(group); i >= 0; i = tickets.next(group), ++num_counted) {
    mask_group(group, op, params, i, scratch);
    keep_masks(group, routing, i, scratch);
  }
  return num_counted;
}

/// This lane's share of the stages that follow from the counting.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void complete_counts(G group,
                                    const primitives::OpContext<Exec>& op,
                                    const layout::TableShape& shape,
                                    const RouteScratch& scratch,
                                    std::int64_t num_counted) {
  stage_complete(group, op, layout::Stage::kCounted, num_counted);
  if (shape.has_expert_rows) return;
  tally_experts(group, op, shape, scratch);
  stage_complete(group, op, layout::Stage::kTallied, num_counted);
}

/// A count of this rank to every peer.
template <primitives::Executor Exec>
EP_HOST_DEVICE void send_count_to(const primitives::OpContext<Exec>& op,
                                  int peer,
                                  int column,
                                  std::int32_t count) {
  // Relaxed: the word carries its tag, and publishes nothing but itself.
  Exec::Memory::store_relaxed_sys(op.counts_at(peer, op.rank()) + column,
                                  layout::tagged_word(op.tag(), static_cast<std::uint32_t>(count)));
}

/// Numbers the rows of a column, and tells every peer how many they are. False if the group gave
/// up.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE bool scan_column(G group,
                                const primitives::OpContext<Exec>& op,
                                const RoutingView<Exec>& routing,
                                int column) {
  if (!stage_wait(group, op, layout::Stage::kCounted, routing.shape().num_groups())) return false;
  const layout::TableLayout& tables = routing.params->tables;
  const std::int64_t at = routing.mask_index(column, 0);
  const std::int32_t count = Exec::scan_masks(
      group, routing.template array<std::uint32_t>(tables.masks) + at,
      routing.template array<std::int32_t>(tables.prefixes) + at, routing.shape().num_groups());
  primitives::for_each_peer(group, op, [&](int peer) { send_count_to(op, peer, column, count); });
  stage_complete(group, op, layout::Stage::kScanned, 1);
  return true;
}

/// Rows per expert to every peer, where experts have no masks. False if the group gave up.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE bool send_expert_counts(G group,
                                       const primitives::OpContext<Exec>& op,
                                       const RoutingView<Exec>& routing) {
  const layout::TableShape& shape = routing.shape();
  if (!stage_wait(group, op, layout::Stage::kTallied, shape.num_groups())) return false;
  const auto* totals = op.template array<std::int32_t>(op.control().totals);
  primitives::for_each_strided(group, shape.num_experts, [&](std::int64_t i) {
    const int expert = static_cast<int>(i);
    const std::int32_t count = Exec::Memory::load_relaxed_gpu(totals + expert);
    EP_NO_UNROLL
    for (int peer = 0; peer < op.num_peers(); ++peer)
      send_count_to(op, op.first_peer() + peer, routing.expert_column(expert), count);
  });
  return true;
}

}  // namespace ep::intranode
