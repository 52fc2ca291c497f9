// SPDX-License-Identifier: Apache-2.0
// What the lanes of the route role share out: counting, announcements, and the resolve step that
// one lane per rank runs.
#pragma once

#include "intranode/entry.h"
#include "intranode/protocol_steps.h"
#include "intranode/resolve_steps.h"
#include "intranode/routing_steps.h"
#include "intranode/routing_view.h"

#include <cstdint>

namespace ep::intranode {

/// Steps behind the counting, by ticket: [0, block_end) announces the block, [.., announce_end) the
/// operation, then one step per column, one that resolves, one for the rows of the experts. A lane
/// takes its tickets in ascending order and waits only for steps below its own, and for peers: one
/// lane suffices.
struct RouteSteps {
  std::int64_t block_end;
  std::int64_t announce_end;
  std::int64_t scan_end;
  std::int64_t resolve_end;
  std::int64_t end;

  EP_HOST_DEVICE explicit RouteSteps(const DispatchParams& params) {
    const layout::TableShape& shape = params.routing.tables.shape;
    const bool is_counting = params.is_counting();
    block_end = params.announces_block_first() ? 1 : 0;
    announce_end = block_end + (params.has_counts ? 1 : 0);
    scan_end = announce_end + (is_counting ? shape.num_mask_columns() : 0);
    resolve_end = scan_end + 1;
    end = resolve_end + (is_counting && !shape.has_expert_rows ? 1 : 0);
  }
};

/// Whether this rank accepts its call: known once its topk_idx is counted. False if the group gave
/// up.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE bool judge_call(G group,
                               const primitives::OpContext<Exec>& op,
                               const DispatchParams& params,
                               std::uint32_t& rejection) {
  rejection = params.is_fresh ? op.params->rejection : handle_rejection(op, params.routing);
  if (!params.is_counting()) return true;
  const std::int64_t num_groups = params.routing.tables.shape.num_groups();
  if (!stage_wait(group, op, layout::Stage::kCounted, num_groups)) return false;
  if (Exec::Memory::load_relaxed_gpu(&op.local()->rejected.value) != 0)
    rejection = kRejectedTopkIdx;
  return true;
}

/// Tells every peer what this rank calls, and whether its topk_idx was right. False if the group
/// gave up.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE bool announce_dispatch(G group,
                                      const primitives::OpContext<Exec>& op,
                                      const DispatchParams& params) {
  using Memory = typename Exec::Memory;
  send_op_fields(group, op);
  std::uint32_t rejection = layout::kAccepted;
  if (!judge_call(group, op, params, rejection)) return false;
  if (params.is_counting() && group.thread_rank() == 0) {
    Memory::store(&op.local()->rejected_position.value,
                  Memory::load_relaxed_gpu(&op.local()->rejected.value));
  }
  announce_op(group, op, rejection);
  return true;
}

/// Announces blocks that are known at the launch.
struct KnownBlock {
  /// False if the group gave up.
  template <primitives::Executor Exec, primitives::Coop G>
  EP_HOST_DEVICE bool announce(G group,
                               const primitives::OpContext<Exec>& op,
                               const DispatchParams& params) const {
    announce_block(group, op, params.block, params.block_rejection);
    return true;
  }
};

/// What all ranks say of the operation and of their blocks; into the tables of a fresh dispatch,
/// how many tokens they have and how many rows they keep. kPending if the group gave up.
template <primitives::Executor Exec, primitives::Coop G, class Block>
EP_HOST_DEVICE Verdict await_verdicts(G group,
                                      const primitives::OpContext<Exec>& op,
                                      const DispatchParams& params,
                                      const Block& block) {
  const RoutingView<Exec> routing(params.routing);
  const auto take_tokens = [&](int rank, std::uint32_t value) {
    if (params.is_fresh) Exec::Memory::store(routing.source_tokens() + rank, std::int64_t{value});
  };
  const auto take_field = [&](int field, int rank, std::uint32_t value) {
    if (params.is_fresh && field == static_cast<int>(layout::BlockField::kCapacityRows))
      Exec::Memory::store(routing.capacities() + rank, std::int64_t{value});
  };
  // Blocks that are announced first arrive long before the operations.
  const Verdict early =
      params.announces_block_first() ? look_at_blocks(group, op, take_field) : Verdict::kPending;
  const Verdict of_ops = params.has_counts ? await_ops(group, op, take_tokens) : Verdict::kAccepted;
  if (of_ops != Verdict::kAccepted || !params.has_moves) return of_ops;
  if (early != Verdict::kPending) return early;
  if (!params.announces_block_first() && !block.announce(group, op, params))
    return Verdict::kPending;
  return await_blocks(group, op, take_field);
}

/// Where all rows go. False if the group gave up.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE bool resolve_rows(G group,
                                 const primitives::OpContext<Exec>& op,
                                 const DispatchParams& params,
                                 const RouteScratch& scratch) {
  const RoutingView<Exec> routing(params.routing);
  NeededSizes needed;
  if (params.is_counting()) {
    if (!resolve_counts(group, op, routing, scratch, needed)) return false;
  } else {
    needed.rows = routing.sizes()[static_cast<int>(layout::Size::kNeededRows)];
  }
  if (params.has_moves) {
    store_kept_rows(group, routing, needed.rows,
                    std::int64_t{params.block[layout::BlockField::kCapacityRows]});
  }
  return true;
}

/// Waits for all ranks, judges, and resolves the routing. Run by one lane per rank. False if the
/// group gave up.
template <primitives::Executor Exec, primitives::Coop G, class Block = KnownBlock>
EP_HOST_DEVICE bool resolve(G group,
                            const primitives::OpContext<Exec>& op,
                            const DispatchParams& params,
                            const primitives::Lane& lane,
                            const Block& block = {}) {
  const RoutingView<Exec> routing(params.routing);
  const Verdict verdict = await_verdicts(group, op, params, block);
  if (verdict == Verdict::kPending) return false;
  if (params.is_fresh && verdict != Verdict::kAccepted) {
    clear_sizes(group, routing);
  } else if (params.is_fresh &&
             !resolve_rows(group, op, params, RouteScratch(lane, routing.shape()))) {
    return false;
  }
  // Rows find their places by the prefixes.
  if (params.is_counting() &&
      !stage_wait(group, op, layout::Stage::kScanned, routing.shape().num_mask_columns())) {
    return false;
  }
  publish_verdict(group, op, verdict);
  return true;
}

/// kFlat: rows of this rank's experts, for which no row waits. False if the group gave up.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE bool exchange_expert_counts(G group,
                                           const primitives::OpContext<Exec>& op,
                                           const DispatchParams& params,
                                           const primitives::Lane& lane) {
  const RoutingView<Exec> routing(params.routing);
  const RouteScratch scratch(lane, routing.shape());
  if (!send_expert_counts(group, op, routing)) return false;
  const Outcome outcome = await_verdict(group, op);
  if (outcome != Outcome::kMove) return outcome != Outcome::kGaveUp;
  if (!await_experts(group, op, routing, scratch)) return false;
  store_expert_counts(group, op, routing, scratch);
  return true;
}

/// False if the group gave up.
template <primitives::Executor Exec, primitives::Coop G, class Block>
EP_HOST_DEVICE bool route_step(G group,
                               const primitives::OpContext<Exec>& op,
                               const DispatchParams& params,
                               const primitives::Lane& lane,
                               std::int64_t step,
                               const Block& block) {
  const RouteSteps steps(params);
  if (step < steps.block_end) return block.announce(group, op, params);
  if (step < steps.announce_end) return announce_dispatch(group, op, params);
  if (step < steps.scan_end) {
    const RoutingView<Exec> routing(params.routing);
    return scan_column(group, op, routing, static_cast<int>(step - steps.announce_end));
  }
  if (step < steps.resolve_end) return resolve(group, op, params, lane, block);
  return exchange_expert_counts(group, op, params, lane);
}

/// Counts, then takes steps; `block` announces this rank's outputs. False if the group gave up.
template <primitives::Executor Exec, primitives::Coop G, class Block = KnownBlock>
EP_HOST_DEVICE bool route(G group,
                          const primitives::OpContext<Exec>& op,
                          const DispatchParams& params,
                          const primitives::Lane& lane,
                          const Block& block = {}) {
  const Entry<Exec> entry(group, op);
  // Claimed ahead of the counting: a lane that runs does not depend on one that does not.
  primitives::TicketStream<Exec> tickets(group, op.ticket(layout::Ticket::kRoute),
                                         RouteSteps(params).end);
  const RouteScratch scratch(lane, params.routing.tables.shape);
  const bool is_counting = params.is_counting();
  const std::int64_t num_counted = is_counting ? count_groups(group, op, params, scratch) : 0;
  if (!entry.is_alone(group, op)) return false;
  if (is_counting) complete_counts(group, op, params.routing.tables.shape, scratch, num_counted);
  for (std::int64_t step = tickets.next(group); step >= 0; step = tickets.next(group)) {
    if (!route_step(group, op, params, lane, step, block)) return false;
  }
  return true;
}

}  // namespace ep::intranode
