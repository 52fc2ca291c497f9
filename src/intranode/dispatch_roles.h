// SPDX-License-Identifier: Apache-2.0
// The roles of a dispatch: route, send, copy. README.md draws how they meet.
#pragma once

#include "intranode/copy_steps.h"
#include "intranode/dispatch_resolve.h"
#include "intranode/entry.h"
#include "intranode/receive_steps.h"
#include "intranode/send_lane.h"

#include <cstdint>

namespace ep::intranode {

/// What the route lanes add to the rows once they know where these go: records (kFlat) or padding
/// (kExpertMajor). False if the group gave up.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE bool complete_rows(G group,
                                  const primitives::OpContext<Exec>& op,
                                  const DispatchParams& params,
                                  const primitives::Lane& lane) {
  const Outcome outcome = await_verdict(group, op);
  if (outcome != Outcome::kMove) return outcome != Outcome::kGaveUp;
  if (params.has_records) return send_records(group, op, params, lane);
  if (params.has_expert_rows()) pad_experts(group, op, params);
  return true;
}

/// Counts the routing, tells all ranks, and resolves where every row goes; then completes the rows.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void route_role(G group,
                               const DispatchParams& params,
                               const primitives::Lane& lane) {
  const primitives::OpContext<Exec> op(params.op);
  if (!route(group, op, params, lane)) return;
  if (params.is_moving() && !complete_rows(group, op, params, lane)) return;
  leave_dispatch(group, op, params);
}

/// Moves rows: loads each once and stores it to all its places.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void send_role(G group, const DispatchParams& params, const primitives::Lane& lane) {
  const primitives::OpContext<Exec> op(params.op);
  const Entry<Exec> entry(group, op);
  SendLane<Exec, G> sender(group, op, params, lane);
  sender.prefetch();  // rows start to move before any count exists
  sender.locate_early();
  if (!entry.is_alone(group, op)) return;
  const Outcome outcome = await_verdict(group, op);
  if (outcome == Outcome::kGaveUp) return;
  if (outcome == Outcome::kMove && !sender.run()) return;
  leave_dispatch(group, op, params);
}

/// kExpertMajor: follows the chunks of the other ranks and makes the further copies of their rows;
/// in the backward of a weighted combine also the products with the experts' rows.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void copy_role(G group, const DispatchParams& params, const primitives::Lane& lane) {
  const primitives::OpContext<Exec> op(params.op);
  const Entry<Exec> entry(group, op);
  if (!entry.is_alone(group, op)) return;
  const Outcome outcome = await_verdict(group, op);
  if (outcome == Outcome::kGaveUp) return;
  if (outcome == Outcome::kMove && !CopyLane<Exec, G>(group, op, params, lane).run()) return;
  leave_dispatch(group, op, params);
}

}  // namespace ep::intranode
