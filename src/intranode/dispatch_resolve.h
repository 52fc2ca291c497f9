// SPDX-License-Identifier: Apache-2.0
// The resolve step of a dispatch: run by the one lane per rank that got its ticket.
#pragma once

#include "intranode/entry.h"
#include "intranode/protocol_steps.h"
#include "intranode/resolve_steps.h"
#include "intranode/routing_steps.h"
#include "intranode/routing_view.h"

#include <cstdint>

namespace ep::intranode {

/// Tells every peer what this rank calls, with its counts. Run by one lane per rank once stage
/// kCounted is complete.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void announce_dispatch(G group,
                                      const primitives::OpContext<Exec>& op,
                                      const DispatchParams& params) {
  using Memory = typename Exec::Memory;
  std::uint32_t rejection =
      params.is_fresh ? op.params->rejection : handle_rejection(op, params.routing);
  if (rejection == layout::kAccepted && params.is_fresh) {
    send_counts(group, op, params.routing.tables.shape.num_columns());
    const std::uint64_t rejected = Memory::load_relaxed_gpu(&op.local()->rejected.value);
    if (group.thread_rank() == 0) Memory::store(&op.local()->rejected_position.value, rejected);
    if (rejected != 0) rejection = kRejectedTopkIdx;
  }
  announce_op(group, op, rejection);
}

/// Waits for all ranks, judges, and resolves the routing. Run by one lane per rank. False if the
/// group gave up.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE bool resolve(G group,
                            const primitives::OpContext<Exec>& op,
                            const DispatchParams& params,
                            const primitives::Lane& lane) {
  const RoutingView<Exec> routing(params.routing);
  const RouteScratch scratch(lane, routing.shape());
  const bool is_counting = params.is_counting();
  Verdict verdict = Verdict::kAccepted;
  if (params.has_counts) {
    if (!await_ops(group, op)) return false;
    verdict = judge_ops(group, op);
  }
  if (verdict == Verdict::kAccepted && params.has_moves) {
    if (!params.announces_block_first())
      announce_block(group, op, params.block, params.block_rejection);
    if (!await_blocks(group, op)) return false;
    verdict = judge_blocks(group, op);
  }
  if (verdict == Verdict::kAccepted && params.is_fresh) {
    const std::int64_t needed_rows =
        is_counting ? resolve_counts(group, op, routing, scratch).rows
                    : routing.sizes()[static_cast<int>(layout::Size::kNeededRows)];
    if (params.has_moves) resolve_capacities(group, op, routing, needed_rows);
  }
  if (verdict == Verdict::kAccepted && is_counting) {
    // Rows find their places by the prefixes, and another lane may still sum up its last column.
    const std::int64_t num_columns = routing.shape().num_mask_columns();
    if (!stage_wait(group, op, layout::Stage::kScanned, num_columns)) return false;
  }
  if (verdict != Verdict::kAccepted && params.is_fresh) clear_sizes(group, routing);
  publish_verdict(group, op, verdict);
  if (verdict == Verdict::kAccepted && is_counting && !routing.shape().has_expert_rows) {
    // Nobody waits for these.
    sum_experts(group, op, routing, scratch);
    store_expert_counts(group, op, routing, scratch);
  }
  return true;
}

/// What the lanes of the route role share out by tickets: counts, block, announcement, prefix sums,
/// verdict. False if the group gave up.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE bool route(G group,
                          const primitives::OpContext<Exec>& op,
                          const DispatchParams& params,
                          const primitives::Lane& lane) {
  const Entry<Exec> entry(group, op);
  const layout::TableShape& shape = params.routing.tables.shape;
  const bool is_counting = params.is_counting();
  // Claimed ahead of the counting: a lane that runs does not depend on one that does not.
  primitives::TicketStream<Exec> blocks(group, op.ticket(layout::Ticket::kBlock),
                                        params.announces_block_first() ? 1 : 0);
  primitives::TicketStream<Exec> announcements(group, op.ticket(layout::Ticket::kAnnounce),
                                               params.has_counts ? 1 : 0);
  primitives::TicketStream<Exec> verdicts(group, op.ticket(layout::Ticket::kResolve), 1);
  const RouteScratch scratch(lane, shape);
  const std::int64_t num_counted = is_counting ? count_groups(group, op, params, scratch) : 0;
  if (!entry.is_alone(group, op)) return false;
  if (is_counting) add_counts(group, op, shape, scratch, num_counted);
  if (blocks.next(group) >= 0) announce_block(group, op, params.block, params.block_rejection);
  if (is_counting && !stage_wait(group, op, layout::Stage::kCounted, shape.num_groups()))
    return false;
  if (announcements.next(group) >= 0) announce_dispatch(group, op, params);
  if (is_counting) scan_columns(group, op, params);
  return verdicts.next(group) < 0 || resolve(group, op, params, lane);
}

}  // namespace ep::intranode
