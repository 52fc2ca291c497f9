// SPDX-License-Identifier: Apache-2.0
// The roles of a combine between nodes: of a rank's own operation (post, pull) and of its delegates
// (prepare, partial). README.md draws how they meet.
#pragma once

#include "internode/delegate.h"
#include "internode/far_terms.h"
#include "internode/partial_lane.h"
#include "internode/rail_call.h"
#include "intranode/combine_roles.h"

#include <cstdint>

namespace ep::internode {

template <primitives::Net N>
using CombineCall = RailCall<intranode::CombineParams, N>;

/// Tells the delegates what this rank calls. False if the group gave up.
template <primitives::Executor Exec, primitives::Net N, primitives::Coop G>
bool post_combine(G group, const HostSide<Exec, N>& host, const intranode::CombineParams& params) {
  const layout::TableShape& shape = params.routing.tables.shape;
  layout::NetMessage message;
  message.rejection = intranode::handle_rejection(host.op, params.routing);
  MessageTables tables{.num_tokens = shape.num_tokens, .topk = shape.topk};
  if (message.rejection == layout::kAccepted) {
    message.has_block = 1;
    message.block = params.block;
    if (params.sum.weighted) tables.weights = params.weights.input;
  }
  return post_message(group, host, message, tables);
}

/// Own operation: tells the delegates.
template <primitives::Executor Exec, primitives::Net N, primitives::Coop G>
void post_combine_role(G group, const CombineCall<N>& call, const primitives::Lane& lane) {
  const intranode::CombineParams& params = *call.params;
  const HostSide<Exec, N> host(params.op, *call.rail, *call.net, lane.channel);
  const intranode::Entry<Exec> entry(group, host.op);
  primitives::TicketStream<Exec> tickets(group, host.op.ticket(layout::Ticket::kPost), 1);
  if (!entry.is_alone(group, host.op)) return;
  if (tickets.next(group) >= 0 && !post_combine(group, host, params)) return;
  const intranode::Outcome outcome = intranode::await_verdict(group, host.op);
  if (outcome == intranode::Outcome::kGaveUp) return;
  const bool has_moved = outcome == intranode::Outcome::kMove;
  if (!leave_rails(group, host, call, host.layout().sums_received, has_moved)) return;
  intranode::leave_combine(group, host.op, params);
}

/// Own operation: sums what lies on this node, which Terms finds, and what came from others.
template <class Terms, primitives::Executor Exec, primitives::Net N, primitives::Coop G>
void pull_far_rows(G group, const CombineCall<N>& call, const primitives::Lane& lane) {
  using Far = FarTerms<Exec, N, G>;
  const intranode::CombineParams& params = *call.params;
  const HostSide<Exec, N> host(params.op, *call.rail, *call.net, lane.channel);
  const intranode::Entry<Exec> entry(group, host.op);
  if (!entry.is_alone(group, host.op)) return;
  const intranode::Outcome outcome = intranode::await_verdict(group, host.op);
  if (outcome == intranode::Outcome::kGaveUp) return;
  const bool has_moved = outcome == intranode::Outcome::kMove;
  if (has_moved) {
    const Far far(group, host, params);
    if (!intranode::PullLane<Terms, Exec, G, Far>(group, host.op, params, lane, far).run()) return;
  }
  if (!leave_rails(group, host, call, host.layout().sums_received, has_moved)) return;
  intranode::leave_combine(group, host.op, params);
}

template <primitives::Executor Exec, primitives::Net N, primitives::Coop G>
void pull_far_role(G group, const CombineCall<N>& call, const primitives::Lane& lane) {
  if (call.params->has_expert_rows()) {
    pull_far_rows<intranode::ExpertTerms<Exec, G>, Exec>(group, call, lane);
  } else {
    pull_far_rows<intranode::FlatTerms<Exec, G>, Exec>(group, call, lane);
  }
}

/// The last lane of a delegate waits for nobody: there are no rows that others read.
template <primitives::Executor Exec, primitives::Net N, primitives::Coop G>
void leave_delegate(G group, const HostSide<Exec, N>& host, const DelegateView<Exec>& delegate) {
  const primitives::OpContext<Exec>& op = *delegate.op;
  if (!intranode::is_last_to_leave(group, op)) return;
  if (intranode::verdict_of(op) == intranode::Verdict::kAccepted && group.thread_rank() == 0)
    count_on<Exec>(*host.rail, host.layout().sums_sent, delegate.index, delegate.chunks);
  intranode::reset_local_state(group, op, true);
}

/// A delegate's lane once its call is known: runs `role`(host side, view, parameters).
template <primitives::Executor Exec, primitives::Net N, primitives::Coop G, class Role>
void run_combine_delegate(
    G group, const CombineCall<N>& call, int index, const primitives::Lane& lane, Role role) {
  with_delegate<Exec>(group, call, index, lane,
                      [&](const HostSide<Exec, N>& host, const DelegateView<Exec>& view,
                          const intranode::CombineParams& params) {
                        const intranode::Entry<Exec> entry(group, *view.op);
                        if (!entry.is_alone(group, *view.op) || !role(host, view, params)) return;
                        if (primitives::net_flush(group, host.net))
                          leave_delegate(group, host, view);
                      });
}

/// Announces as the rank behind the delegate, and judges.
template <primitives::Executor Exec, primitives::Net N, primitives::Coop G>
void delegate_prepare_role(G group,
                           const CombineCall<N>& call,
                           int index,
                           const primitives::Lane& lane) {
  run_combine_delegate<Exec>(
      group, call, index, lane,
      [&](const HostSide<Exec, N>&, const DelegateView<Exec>& view,
          const intranode::CombineParams& params) {
        primitives::TicketStream<Exec> tickets(group, view.op->ticket(layout::Ticket::kResolve), 1);
        return tickets.next(group) < 0 || intranode::resolve_combine(group, *view.op, params);
      });
}

/// Sums as the rank behind the delegate, with Terms.
template <class Terms, primitives::Executor Exec, primitives::Net N, primitives::Coop G>
void partial_rows(G group, const CombineCall<N>& call, int index, const primitives::Lane& lane) {
  run_combine_delegate<Exec>(
      group, call, index, lane,
      [&](const HostSide<Exec, N>& host, const DelegateView<Exec>& view,
          const intranode::CombineParams& params) {
        const intranode::Outcome outcome = intranode::await_verdict(group, *view.op);
        if (outcome != intranode::Outcome::kMove)
          return outcome == intranode::Outcome::kNothingToMove;
        return PartialLane<Terms, Exec, N, G>(group, host, view, params, lane).run();
      });
}

template <primitives::Executor Exec, primitives::Net N, primitives::Coop G>
void partial_role(G group, const CombineCall<N>& call, int index, const primitives::Lane& lane) {
  if (call.params->has_expert_rows()) {
    partial_rows<intranode::ExpertTerms<Exec, G>, Exec>(group, call, index, lane);
  } else {
    partial_rows<intranode::FlatTerms<Exec, G>, Exec>(group, call, index, lane);
  }
}

}  // namespace ep::internode
