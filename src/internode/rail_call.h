// SPDX-License-Identifier: Apache-2.0
// What the lanes of a launch share, and steps that dispatch and combine have in common.
#pragma once

#include "internode/chunk_steps.h"
#include "internode/delegate.h"
#include "internode/host_side.h"
#include "internode/rail_params.h"
#include "primitives/ticket.h"

#include <cstdint>

namespace ep::internode {

/// One launch of a rank.
template <class Params, primitives::Net N>
struct RailCall {
  const Params* params;
  const RailParams* rail;
  N* net;
  /// Lanes of the rank's own operation that use the rails.
  int num_rail_lanes;
  /// Lanes of each delegate.
  int num_delegate_lanes;
};

/// A lane of a delegate: waits for what the rank behind it calls, then runs `work`(host side, view,
/// parameters).
template <primitives::Executor Exec,
          primitives::Net N,
          primitives::Coop G,
          class Params,
          class Work>
void with_delegate(
    G group, const RailCall<Params, N>& call, int index, const primitives::Lane& lane, Work work) {
  const HostSide<Exec, N> host(call.params->op, *call.rail, *call.net, lane.channel, index);
  ReceivedMessage received;
  if (!await_message(group, host, index, received)) return;
  const Params params =
      delegate_params(*call.params, *call.rail, index, received, call.num_delegate_lanes);
  const primitives::OpContext<Exec> op(params.op);
  const RailTables tables(*call.rail, call.params->routing);
  work(host,
       DelegateView<Exec>{
           .index = index,
           .op = &op,
           .chunks = tables.of_delegate(index, params.routing.tables.shape.num_tokens)},
       params);
}

/// One lane of the operation runs `group_all`, unless the handle has the chunks; all wait for it.
/// False if the group gave up.
template <primitives::Executor Exec, primitives::Coop G, class Step>
[[nodiscard]] bool group_once(G group,
                              const primitives::OpContext<Exec>& op,
                              bool is_fresh,
                              Step group_all) {
  if (!is_fresh) return true;
  primitives::TicketStream<Exec> tickets(group, op.ticket(layout::Ticket::kGroup), 1);
  if (tickets.next(group) >= 0) {
    group_all();
    primitives::stage_complete(group, op, layout::Stage::kGrouped, 1);
  }
  return primitives::stage_wait(group, op, layout::Stage::kGrouped, 1);
}

/// A lane of the rank's own operation is done with the rails; the last one counts the chunks that
/// went by. False if the group gave up.
template <primitives::Executor Exec, primitives::Net N, primitives::Coop G, class Params>
[[nodiscard]] bool leave_rails(G group,
                               const HostSide<Exec, N>& host,
                               const RailCall<Params, N>& call,
                               std::int64_t counters,
                               bool has_moved) {
  if (!primitives::net_flush(group, host.net)) return false;
  if (!is_last_on_rails(group, host.op, call.num_rail_lanes)) return true;
  if (!has_moved || group.thread_rank() != 0) return true;
  const RailTables tables(*host.rail, call.params->routing);
  for (int i = 0; i < host.rail->num_far_nodes(); ++i) {
    const int node = host.rail->far_node(i);
    count_on<Exec>(*host.rail, counters, node, tables.of_node(node));
  }
  return true;
}

}  // namespace ep::internode
