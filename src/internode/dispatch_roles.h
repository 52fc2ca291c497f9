// SPDX-License-Identifier: Apache-2.0
// The roles of a dispatch between nodes: of a rank's own operation (post, rail) and of its
// delegates (route, forward). README.md draws how they meet.
#pragma once

#include "internode/chunk_steps.h"
#include "internode/delegate.h"
#include "internode/forward_lane.h"
#include "internode/gradient_steps.h"
#include "internode/rail_call.h"
#include "internode/rail_lane.h"
#include "intranode/dispatch_roles.h"

#include <cstdint>

namespace ep::internode {

template <primitives::Net N>
using DispatchCall = RailCall<intranode::DispatchParams, N>;

/// Tells the delegates what this rank calls, and where its blocks lie as soon as that is known.
/// False if the group gave up.
template <primitives::Executor Exec, primitives::Net N, primitives::Coop G>
bool post_dispatch(G group,
                   const HostSide<Exec, N>& host,
                   const intranode::DispatchParams& params) {
  if (!params.has_counts) return post_block(group, host, params.block, params.block_rejection);
  layout::NetMessage message;
  if (!intranode::judge_call(group, host.op, params, message.rejection)) return false;
  const layout::TableShape& shape = params.routing.tables.shape;
  MessageTables tables{.num_tokens = shape.num_tokens, .topk = shape.topk};
  if (message.rejection == layout::kAccepted) {
    if (params.is_counting())
      tables.ids = intranode::RoutingView<Exec>(params.routing).experts_of(0);
    if (params.has_weights) tables.weights = params.topk_weights;
  }
  if (params.announces_block_first()) {
    message.has_block = 1;
    message.block = params.block;
    message.block_rejection = params.block_rejection;
  }
  return post_message(group, host, message, tables);
}

/// The chunks of this rank's tokens for every other node. False if the group gave up.
template <primitives::Executor Exec, primitives::Net N, primitives::Coop G>
bool group_by_node(G group,
                   const HostSide<Exec, N>& host,
                   const intranode::DispatchParams& params) {
  return group_once(group, host.op, params.is_fresh, [&] {
    const layout::NodeMap& nodes = host.rail->nodes;
    const RailTables tables(*host.rail, params.routing);
    for (int i = 0; i < host.rail->num_far_nodes(); ++i) {
      const int node = host.rail->far_node(i);
      group_tokens(group, intranode::RoutingView<Exec>(params.routing),
                   RankRange{nodes.first_rank(node), nodes.end_rank(node)}, tables.of_node(node));
    }
  });
}

/// Own operation: tells the delegates, and takes what they return.
template <primitives::Executor Exec, primitives::Net N, primitives::Coop G>
void post_dispatch_role(G group, const DispatchCall<N>& call, const primitives::Lane& lane) {
  const intranode::DispatchParams& params = *call.params;
  const HostSide<Exec, N> host(params.op, *call.rail, *call.net, lane.channel);
  const intranode::Entry<Exec> entry(group, host.op);
  primitives::TicketStream<Exec> tickets(group, host.op.ticket(layout::Ticket::kPost), 1);
  if (!entry.is_alone(group, host.op)) return;
  const bool is_poster = tickets.next(group) >= 0;
  if (is_poster && !post_dispatch(group, host, params)) return;
  const intranode::Outcome outcome = intranode::await_verdict(group, host.op);
  if (outcome == intranode::Outcome::kGaveUp) return;
  const bool has_moved = outcome == intranode::Outcome::kMove && params.has_moves;
  if (has_moved) {
    if (!group_by_node(group, host, params)) return;
    if (is_poster && params.returns_gradient && !take_gradients(group, host, params)) return;
  }
  if (!leave_rails(group, host, call, host.layout().rows_sent, has_moved)) return;
  intranode::leave_dispatch(group, host.op, params);
}

/// Own operation: rows to the delegates.
template <primitives::Executor Exec, primitives::Net N, primitives::Coop G>
void rail_role(G group, const DispatchCall<N>& call, const primitives::Lane& lane) {
  const intranode::DispatchParams& params = *call.params;
  const HostSide<Exec, N> host(params.op, *call.rail, *call.net, lane.channel);
  const intranode::Entry<Exec> entry(group, host.op);
  if (!entry.is_alone(group, host.op)) return;
  const intranode::Outcome outcome = intranode::await_verdict(group, host.op);
  if (outcome == intranode::Outcome::kGaveUp) return;
  const bool has_moved = outcome == intranode::Outcome::kMove;
  if (has_moved) {
    if (!group_by_node(group, host, params)) return;
    if (!RailLane<Exec, N, G>(group, host, params, lane).run()) return;
  }
  if (!leave_rails(group, host, call, host.layout().rows_sent, has_moved)) return;
  intranode::leave_dispatch(group, host.op, params);
}

/// Announces the blocks of the rank behind a delegate, which may come later than its call.
template <primitives::Executor Exec, primitives::Net N>
struct DelegateBlock {
  const HostSide<Exec, N>* host;
  int index;

  /// False if the group gave up.
  template <primitives::Coop G>
  bool announce(G group,
                const primitives::OpContext<Exec>& op,
                const intranode::DispatchParams& params) const {
    layout::NetMessage message{.block_rejection = params.block_rejection, .block = params.block};
    if (!params.knows_block && !await_block_message(group, *host, index, message)) return false;
    if (params.returns_gradient) {
      const layout::NetLayout& layout = host->layout();
      clear_gradients(group, *host, index, params.routing.tables.shape);
      message.block.place(
          layout::Section::kSideValues,
          location_from_delegate(layout, index, layout.gradients_of(layout.gradients_out, index)));
    }
    intranode::announce_block(group, op, message.block, message.block_rejection);
    return true;
  }
};

/// The last lane of a delegate. Nothing arrives there, but gradients.
template <primitives::Executor Exec, primitives::Net N, primitives::Coop G>
void leave_delegate(G group,
                    const HostSide<Exec, N>& host,
                    const DelegateView<Exec>& delegate,
                    const intranode::DispatchParams& params) {
  const primitives::OpContext<Exec>& op = *delegate.op;
  if (!intranode::is_last_to_leave(group, op)) return;
  const bool is_accepted = intranode::verdict_of(op) == intranode::Verdict::kAccepted;
  if (params.has_moves && is_accepted) {
    if (params.returns_gradient && !return_gradients(group, host, delegate.index, op, params)) {
      return;
    }
    if (group.thread_rank() == 0)
      count_on<Exec>(*host.rail, host.layout().rows_received, delegate.index, delegate.chunks);
  }
  intranode::reset_local_state(group, op, params.has_moves || !is_accepted);
}

/// A delegate's lane once its call is known: runs `role`(host side, view, parameters).
template <primitives::Executor Exec, primitives::Net N, primitives::Coop G, class Role>
void run_dispatch_delegate(
    G group, const DispatchCall<N>& call, int index, const primitives::Lane& lane, Role role) {
  with_delegate<Exec>(group, call, index, lane,
                      [&](const HostSide<Exec, N>& host, const DelegateView<Exec>& view,
                          const intranode::DispatchParams& params) {
                        if (role(host, view, params) && primitives::net_flush(group, host.net))
                          leave_delegate(group, host, view, params);
                      });
}

/// Counts and announces as the rank behind the delegate.
template <primitives::Executor Exec, primitives::Net N, primitives::Coop G>
void delegate_route_role(G group,
                         const DispatchCall<N>& call,
                         int index,
                         const primitives::Lane& lane) {
  run_dispatch_delegate<Exec>(
      group, call, index, lane,
      [&](const HostSide<Exec, N>& host, const DelegateView<Exec>& view,
          const intranode::DispatchParams& params) {
        const DelegateBlock<Exec, N> block{&host, index};
        return intranode::route(group, *view.op, params, lane, block) &&
               (!params.is_moving() || intranode::complete_rows(group, *view.op, params, lane));
      });
}

/// Forwards the rows of the rank behind the delegate.
template <primitives::Executor Exec, primitives::Net N, primitives::Coop G>
void forward_role(G group, const DispatchCall<N>& call, int index, const primitives::Lane& lane) {
  run_dispatch_delegate<Exec>(
      group, call, index, lane,
      [&](const HostSide<Exec, N>& host, const DelegateView<Exec>& view,
          const intranode::DispatchParams& params) {
        const intranode::Entry<Exec> entry(group, *view.op);
        if (!entry.is_alone(group, *view.op)) return false;
        const intranode::Outcome outcome = intranode::await_verdict(group, *view.op);
        if (outcome != intranode::Outcome::kMove)
          return outcome == intranode::Outcome::kNothingToMove;
        const layout::NodeMap& nodes = host.rail->nodes;
        const int home = host.rail->node();
        const bool is_grouped = group_once(group, *view.op, params.is_fresh, [&] {
          group_tokens(group, intranode::RoutingView<Exec>(params.routing),
                       RankRange{nodes.first_rank(home), nodes.end_rank(home)}, view.chunks);
        });
        return is_grouped && ForwardLane<Exec, N, G>(group, host, view, params, lane).run();
      });
}

}  // namespace ep::internode
