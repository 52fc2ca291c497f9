// SPDX-License-Identifier: Apache-2.0
// What a rank tells its delegates of an operation, and how they take it.
#pragma once

#include "internode/host_side.h"
#include "intranode/routing_view.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ep::internode {

/// What goes along with a message.
struct MessageTables {
  const std::int32_t* ids = nullptr;  ///< [entries]; null: none
  intranode::StridedInput weights{};  ///< fp32; data null: none
  std::int64_t num_tokens = 0;
  int topk = 1;

  std::int64_t num_entries() const { return num_tokens * topk; }
};

/// Puts the same bytes to every delegate: to place_of(index), with signal `first` + index. They may
/// change again when it returns. False if the group gave up.
template <primitives::Executor Exec, primitives::Net N, primitives::Coop G, class PlaceOf>
[[nodiscard]] bool put_to_delegates(G group,
                                    const HostSide<Exec, N>& host,
                                    primitives::NetPut put,
                                    std::uint32_t first_signal,
                                    PlaceOf place_of) {
  const layout::NodeMap& nodes = host.rail->nodes;
  for (int i = 0; i < host.rail->num_far_nodes(); ++i) {
    const int node = host.rail->far_node(i);
    const int index = nodes.delegate_index(host.op.rank(), node);
    put.peer = nodes.rail_peer(host.op.rank(), node);
    put.dst_offset = place_of(index);
    put.signal = {.strength = primitives::SignalStrength::kWeak,
                  .slot = first_signal + static_cast<std::uint32_t>(index)};
    if (!primitives::net_put(group, host.net, put)) return false;
  }
  return primitives::net_flush(group, host.net);
}

/// Tells all delegates. The tables are complete and do not change meanwhile. False if the group
/// gave up.
template <primitives::Executor Exec, primitives::Net N, primitives::Coop G>
[[nodiscard]] bool post_message(G group,
                                const HostSide<Exec, N>& host,
                                layout::NetMessage message,
                                const MessageTables& tables) {
  using Memory = typename Exec::Memory;
  const layout::NetLayout& layout = host.layout();
  message.epoch = host.op.epoch;
  message.op = host.op.params->announcement;
  message.has_ids = tables.ids == nullptr ? 0 : 1;
  message.has_weights = tables.weights.data == nullptr ? 0 : 1;
  std::byte* const outbox = host.at(layout.outbox);
  if (group.thread_rank() == 0) std::memcpy(outbox, &message, sizeof(message));
  auto* ids = layout::array_at<std::int32_t>(outbox, layout::kNetMessageBytes);
  const std::int64_t num_ids = message.has_ids * tables.num_entries();
  primitives::for_each_strided(group, num_ids,
                               [&](std::int64_t i) { Memory::store(ids + i, tables.ids[i]); });
  auto* weights = layout::array_at<float>(layout::bytes_of(ids + num_ids), 0);
  const std::int64_t num_weights = message.has_weights * tables.num_entries();
  const auto* input = static_cast<const float*>(tables.weights.data);
  primitives::for_each_strided(group, num_weights, [&](std::int64_t i) {
    const std::int64_t token = i / tables.topk;
    const std::int64_t k = i % tables.topk;
    Memory::store(weights + i,
                  input[token * tables.weights.row_stride + k * tables.weights.col_stride]);
  });
  return put_to_delegates(group, host,
                          {.src_offset = layout.outbox,
                           .bytes = layout::kNetMessageBytes + 4 * (num_ids + num_weights)},
                          layout.signals.messages,
                          [&](int index) { return layout.inbox_of(index, host.op.epoch); });
}

/// The blocks of an operation whose message had none. False if the group gave up.
template <primitives::Executor Exec, primitives::Net N, primitives::Coop G>
[[nodiscard]] bool post_block(G group,
                              const HostSide<Exec, N>& host,
                              const layout::BlockAnnouncement& block,
                              std::uint32_t rejection) {
  const layout::NetLayout& layout = host.layout();
  if (group.thread_rank() == 0) {
    const layout::NetMessage message{.epoch = host.op.epoch,
                                     .has_block = 1,
                                     .block_rejection = rejection,
                                     .op = host.op.params->announcement,
                                     .block = block};
    std::memcpy(host.at(layout.block_outbox), &message, sizeof(message));
  }
  return put_to_delegates(group, host,
                          {.src_offset = layout.block_outbox, .bytes = layout::kNetMessageBytes},
                          layout.signals.blocks,
                          [&](int index) { return layout.block_inbox_of(index, host.op.epoch); });
}

/// A message as a delegate has it.
struct ReceivedMessage {
  layout::NetMessage head{};
  const std::int32_t* ids = nullptr;
  const float* weights = nullptr;
};

/// Whether sizes in a message are such that its tables lie in the inbox.
inline bool is_sound(const layout::NetMessage& message,
                     const layout::NetShape& shape,
                     std::uint64_t epoch) {
  return message.epoch == epoch &&
         std::int64_t{message.op[layout::OpField::kNumTokens]} <= shape.max_tokens &&
         message.op[layout::OpField::kTopk] <= static_cast<std::uint32_t>(shape.max_topk) &&
         message.has_block <= 1 && message.has_ids <= 1 && message.has_weights <= 1;
}

/// Gives up: what `peer` sent is not what the protocol says.
template <primitives::Executor Exec, primitives::Net N, primitives::Coop G>
bool refuse_message(G group, const HostSide<Exec, N>& host, int peer, std::uint64_t got) {
  if (group.thread_rank() != 0) return false;
  return primitives::give_up<Exec>(host.op.params, host.op.epoch,
                                   {primitives::WaitSite::kNetMessage, peer, host.op.epoch}, got,
                                   Exec::clock_ns(), false);
}

/// Waits for what the rank behind a delegate calls. False if the group gave up.
template <primitives::Executor Exec, primitives::Net N, primitives::Coop G>
[[nodiscard]] bool await_message(G group,
                                 const HostSide<Exec, N>& host,
                                 int index,
                                 ReceivedMessage& received) {
  const layout::NetLayout& layout = host.layout();
  const int peer = host.rail->nodes.delegate_rank(host.op.rank(), index);
  const primitives::WaitFor wait{primitives::WaitSite::kNetMessage, peer,
                                 host.rail->num_messages(host.op.epoch)};
  if (!primitives::net_wait(group, host.net, wait,
                            layout.signals.messages + static_cast<std::uint32_t>(index))) {
    return false;
  }
  const std::byte* inbox = host.at(layout.inbox_of(index, host.op.epoch));
  std::memcpy(&received.head, inbox, sizeof(received.head));
  const layout::NetMessage& head = received.head;
  if (!is_sound(head, layout.shape, host.op.epoch))
    return refuse_message(group, host, peer, head.epoch);
  received.ids = layout::array_at<std::int32_t>(inbox, layout::kNetMessageBytes);
  const std::int64_t num_ids = std::int64_t{head.has_ids} * head.op[layout::OpField::kNumTokens] *
                               head.op[layout::OpField::kTopk];
  received.weights = layout::array_at<float>(layout::bytes_of(received.ids + num_ids), 0);
  return true;
}

/// Waits for the blocks of the rank behind a delegate, whose message had none. False if the group
/// gave up.
template <primitives::Executor Exec, primitives::Net N, primitives::Coop G>
[[nodiscard]] bool await_block_message(G group,
                                       const HostSide<Exec, N>& host,
                                       int index,
                                       layout::NetMessage& message) {
  using Memory = typename Exec::Memory;
  const layout::NetLayout& layout = host.layout();
  const int peer = host.rail->nodes.delegate_rank(host.op.rank(), index);
  std::uint64_t* const received = host.rail->counter(layout.blocks_received, index);
  const std::uint64_t expected = Memory::load(received) + 1;
  if (!primitives::net_wait(group, host.net, {primitives::WaitSite::kNetBlock, peer, expected},
                            layout.signals.blocks + static_cast<std::uint32_t>(index))) {
    return false;
  }
  group.sync();
  if (group.thread_rank() == 0) Memory::store(received, expected);
  std::memcpy(&message, host.at(layout.block_inbox_of(index, host.op.epoch)), sizeof(message));
  if (message.epoch != host.op.epoch) return refuse_message(group, host, peer, message.epoch);
  return true;
}

}  // namespace ep::internode
