// SPDX-License-Identifier: Apache-2.0
// The roles of a combine: prepare, push, pull. README.md draws how they meet.
#pragma once

#include "intranode/combine_steps.h"
#include "intranode/copy_push_lane.h"
#include "intranode/entry.h"
#include "intranode/pull_lane.h"
#include "intranode/push_lane.h"

#include <cstdint>

namespace ep::intranode {

/// The last lane: this rank's rows may change again once every peer has read them.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void leave_combine(G group,
                                  const primitives::OpContext<Exec>& op,
                                  const CombineParams& params) {
  if (!is_last_to_leave(group, op)) return;
  const RoutingView<Exec> routing(params.routing);
  const layout::ControlLayout& control = op.control();
  const GrowingCounter pulled{primitives::WaitSite::kPulled, control.pulled, control.pulled_base};
  if (verdict_of(op) == Verdict::kAccepted &&
      !await_growth(group, op, pulled, [&](int src) { return routing.source_tokens()[src]; })) {
    return;
  }
  reset_local_state(group, op, true);
}

/// Copies side arrays into the arena, then tells all ranks that this rank's rows may be read.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void prepare_role(G group, const CombineParams& params, const primitives::Lane&) {
  const primitives::OpContext<Exec> op(params.op);
  const Entry<Exec> entry(group, op);
  primitives::TicketStream<Exec> tickets(group, op.ticket(layout::Ticket::kResolve), 1);
  if (!entry.is_alone(group, op)) return;
  if (params.op.rejection == layout::kAccepted && !prepare_side_arrays(group, op, params)) return;
  if (tickets.next(group) >= 0 && !resolve_combine(group, op, params)) return;
  leave_combine(group, op, params);
}

/// Owner's side of the ring, by PushLane.
template <class PushLane, primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void push_rows(G group, const CombineParams& params, const primitives::Lane& lane) {
  const primitives::OpContext<Exec> op(params.op);
  const Entry<Exec> entry(group, op);
  if (!entry.is_alone(group, op)) return;
  index_pairs(group, op, params);
  const Outcome outcome = await_verdict(group, op);
  if (outcome == Outcome::kGaveUp) return;
  if (outcome == Outcome::kMove) {
    const std::int64_t num_tickets = num_index_tickets(op, params);
    if (!stage_wait(group, op, layout::Stage::kIndexed, num_tickets)) return;
    if (!PushLane(group, op, params, lane).run()) return;
  }
  leave_combine(group, op, params);
}

/// Launched where this rank's rows cannot be read in place, or should not.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void push_role(G group, const CombineParams& params, const primitives::Lane& lane) {
  if (params.has_expert_rows()) {
    push_rows<SumPushLane<Exec, G>, Exec>(group, params, lane);
  } else {
    push_rows<CopyPushLane<Exec, G>, Exec>(group, params, lane);
  }
}

/// Sums the rows of this rank's tokens, which Terms finds.
template <class Terms, primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void pull_rows(G group, const CombineParams& params, const primitives::Lane& lane) {
  const primitives::OpContext<Exec> op(params.op);
  const Entry<Exec> entry(group, op);
  if (!entry.is_alone(group, op)) return;
  const Outcome outcome = await_verdict(group, op);
  if (outcome == Outcome::kGaveUp) return;
  if (outcome == Outcome::kMove && !PullLane<Terms, Exec, G>(group, op, params, lane).run()) return;
  leave_combine(group, op, params);
}

/// Launched on every rank that accepts its call.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void pull_role(G group, const CombineParams& params, const primitives::Lane& lane) {
  if (params.has_expert_rows()) {
    pull_rows<ExpertTerms<Exec, G>, Exec>(group, params, lane);
  } else {
    pull_rows<FlatTerms<Exec, G>, Exec>(group, params, lane);
  }
}

}  // namespace ep::intranode
