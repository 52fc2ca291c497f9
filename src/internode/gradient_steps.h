// SPDX-License-Identifier: Apache-2.0
// The router's gradient of a weighted combine: owners write it to the delegate of a token's rank,
// which returns it over the network.
#pragma once

#include "internode/chunk_steps.h"
#include "internode/delegate.h"
#include "internode/host_side.h"
#include "intranode/receive_steps.h"
#include "intranode/routing_view.h"

#include <cstdint>

namespace ep::internode {

/// Before owners may write: values of rows that do not exist are 0.
template <primitives::Executor Exec, primitives::Net N, primitives::Coop G>
void clear_gradients(G group,
                     const HostSide<Exec, N>& host,
                     int index,
                     const layout::TableShape& shape) {
  const layout::NetLayout& layout = host.layout();
  Exec::zero_bytes(group, host.at(layout.gradients_of(layout.gradients_out, index)),
                   4 * shape.num_tokens * shape.topk);
}

/// The last lane of a delegate: waits for the owners of this node, and returns their values. False
/// if the group gave up.
template <primitives::Executor Exec, primitives::Net N, primitives::Coop G>
[[nodiscard]] bool return_gradients(G group,
                                    const HostSide<Exec, N>& host,
                                    int index,
                                    const primitives::OpContext<Exec>& op,
                                    const intranode::DispatchParams& params) {
  const intranode::RoutingView<Exec> routing(params.routing);
  if (!intranode::await_returned(group, op, routing)) return false;
  const layout::NetLayout& layout = host.layout();
  const int home = host.rail->node();
  const primitives::NetPut put{
      .peer = op.rank(),
      .dst_offset = layout.gradients_of(layout.gradients_in, home),
      .src_offset = layout.gradients_of(layout.gradients_out, index),
      .bytes = 4 * routing.shape().num_tokens * routing.topk(),
      .signal = {.strength = primitives::SignalStrength::kWeak,
                 .slot = layout.signals.gradients + static_cast<std::uint32_t>(home)}};
  return primitives::net_put(group, host.net, put) && primitives::net_flush(group, host.net);
}

/// Own operation: the values of experts on `node`, which are here, into the gradient.
template <primitives::Executor Exec, primitives::Coop G>
void merge_gradients(G group,
                     const intranode::RoutingView<Exec>& routing,
                     RankRange ranks,
                     const float* from_node,
                     float* gradient) {
  const std::int64_t num_entries = routing.shape().num_tokens * routing.topk();
  primitives::for_each_strided(group, num_entries, [&](std::int64_t i) {
    if (!ranks.contains(routing.rank_of(routing.experts_of(0)[i]))) return;
    Exec::Memory::store(gradient + i, Exec::Memory::load(from_node + i));
  });
}

/// Own operation, one lane: waits for the gradients of all other nodes. False if the group gave up.
template <primitives::Executor Exec, primitives::Net N, primitives::Coop G>
[[nodiscard]] bool take_gradients(G group,
                                  const HostSide<Exec, N>& host,
                                  const intranode::DispatchParams& params) {
  using Memory = typename Exec::Memory;
  const layout::NetLayout& layout = host.layout();
  const layout::NodeMap& nodes = host.rail->nodes;
  auto* gradient = layout::array_at<float>(
      host.op.address_of(host.op.rank(), params.block[layout::Section::kSideValues]), 0);
  for (int i = 0; i < host.rail->num_far_nodes(); ++i) {
    const int node = host.rail->far_node(i);
    std::uint64_t* const received = host.rail->counter(layout.gradients_received, node);
    const primitives::WaitFor wait{primitives::WaitSite::kNetGradients,
                                   nodes.rail_peer(host.op.rank(), node),
                                   Memory::load(received) + 1};
    if (!primitives::net_wait(group, host.net, wait,
                              layout.signals.gradients + static_cast<std::uint32_t>(node))) {
      return false;
    }
    const RankRange ranks{nodes.first_rank(node), nodes.end_rank(node)};
    merge_gradients(
        group, intranode::RoutingView<Exec>(params.routing), ranks,
        layout::array_at<float>(host.rail->segment, layout.gradients_of(layout.gradients_in, node)),
        gradient);
    group.sync();
    if (group.thread_rank() == 0) Memory::store(received, wait.expected);
  }
  return true;
}

}  // namespace ep::internode
