// SPDX-License-Identifier: Apache-2.0
// The roles of a dispatch: route, send, record, pad, copy. README.md draws how they meet.
#pragma once

#include "intranode/copy_steps.h"
#include "intranode/dispatch_resolve.h"
#include "intranode/receive_steps.h"
#include "intranode/send_lane.h"

#include <cstdint>

namespace ep::intranode {

/// Counts the routing, tells all ranks, and resolves where every row goes.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void route_role(G group,
                               const DispatchParams& params,
                               const primitives::Lane& lane) {
  const primitives::OpContext<Exec> op(params.op);
  if (!route(group, op, params, lane)) return;
  leave_dispatch(group, op, params);
}

/// Moves rows: loads each once and stores it to all its places.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void send_role(G group, const DispatchParams& params, const primitives::Lane& lane) {
  const primitives::OpContext<Exec> op(params.op);
  SendLane<Exec, G> sender(group, op, params, lane);
  sender.prefetch();  // rows start to move before any count exists
  const Outcome outcome = await_verdict(group, op);
  if (outcome == Outcome::kGaveUp) return;
  if (outcome == Outcome::kMove && !sender.run()) return;
  leave_dispatch(group, op, params);
}

/// kFlat: local expert ids, weights and source tokens of the rows.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void record_role(G group,
                                const DispatchParams& params,
                                const primitives::Lane& lane) {
  const primitives::OpContext<Exec> op(params.op);
  const Outcome outcome = await_verdict(group, op);
  if (outcome == Outcome::kGaveUp) return;
  if (outcome == Outcome::kMove && !send_records(group, op, params, lane)) return;
  leave_dispatch(group, op, params);
}

/// kExpertMajor: zeroes the rows that pad each expert's group.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void pad_role(G group, const DispatchParams& params, const primitives::Lane&) {
  const primitives::OpContext<Exec> op(params.op);
  const Outcome outcome = await_verdict(group, op);
  if (outcome == Outcome::kGaveUp) return;
  if (outcome == Outcome::kMove) pad_experts(group, op, params);
  leave_dispatch(group, op, params);
}

/// kExpertMajor: follows the chunks of the other ranks and makes the further copies of their rows;
/// in the backward of a weighted combine also the products with the experts' rows.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void copy_role(G group, const DispatchParams& params, const primitives::Lane& lane) {
  const primitives::OpContext<Exec> op(params.op);
  const Outcome outcome = await_verdict(group, op);
  if (outcome == Outcome::kGaveUp) return;
  if (outcome == Outcome::kMove && !CopyLane<Exec, G>(group, op, params, lane).run()) return;
  leave_dispatch(group, op, params);
}

}  // namespace ep::intranode
