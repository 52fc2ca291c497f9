// SPDX-License-Identifier: Apache-2.0
// What segment 0 holds behind the control region where a group has several nodes: the control
// regions of delegates, and what travels between nodes. The same offsets on every rank.
#pragma once

#include "layout/announcement.h"
#include "layout/control.h"
#include "layout/epoch.h"
#include "layout/regions.h"

#include <cstdint>

namespace ep::layout {

/// What the regions are sized by; equal on all ranks.
struct NetShape {
  int num_nodes = 1;
  int max_delegates = 0;  ///< of any rank
  std::int64_t max_tokens = 0;
  int max_topk = 1;
  std::int64_t max_row_bytes = 0;
  int num_slots = 1;  ///< chunks on their way between a rank and one of its delegates

  /// Scales of a row, or the router's gradient of its token.
  EP_HOST_DEVICE constexpr std::int64_t max_tail_bytes() const {
    const std::int64_t scales = max_row_bytes / 4;
    const std::int64_t gradient = std::int64_t{4} * max_topk;
    return round_up(scales > gradient ? scales : gradient, kLineBytes);
  }
  /// Rows of the tokens of a chunk, then their tails.
  EP_HOST_DEVICE constexpr std::int64_t chunk_bytes() const {
    return kChunkTokens * (round_up(max_row_bytes, kLineBytes) + max_tail_bytes());
  }
  EP_HOST_DEVICE constexpr std::int64_t max_entries() const { return max_tokens * max_topk; }
};

/// What a rank tells its delegates of an operation. Behind it lie int32 expert ids [T][K], where
/// the operation counts, and fp32 weights [T][K], where it has them.
struct NetMessage {
  std::uint64_t epoch = 0;
  std::uint32_t rejection = 0;
  std::uint32_t has_block = 0;  ///< else a message of its own follows, if the operation goes on
  std::uint32_t block_rejection = 0;
  std::uint32_t has_ids = 0;
  std::uint32_t has_weights = 0;
  OpAnnouncement op{};
  BlockAnnouncement block{};
};
inline constexpr std::int64_t kNetMessageBytes = 256;
static_assert(sizeof(NetMessage) <= kNetMessageBytes);

/// Signals of a rank: first word of each kind.
struct NetSignals {
  std::uint32_t messages = 0;    ///< [delegates]: one per operation
  std::uint32_t blocks = 0;      ///< [delegates]: blocks that came by themselves
  std::uint32_t rows = 0;        ///< [delegates][slots]: chunks of a dispatch
  std::uint32_t rows_freed = 0;  ///< [nodes][slots]: of those, read by the delegate there
  std::uint32_t sums = 0;        ///< [nodes][slots]: chunks of a combine
  std::uint32_t sums_freed = 0;  ///< [delegates][slots]: of those, read by the delegate's rank
  std::uint32_t gradients = 0;   ///< [nodes]: router gradients of a combine's backward
  std::uint32_t num_signals = 0;
};

/// Offsets in bytes from the start of segment 0.
struct NetLayout {
  NetShape shape;
  NetSignals signals;
  std::int64_t delegate_bytes = 0;  // of one delegate's control region
  std::int64_t delegates = 0;       // [delegates] control regions
  // Chunks of all operations so far, u64: sent to the delegate on each node, received for each
  // delegate; sums sent for each delegate, received from each node; blocks and gradients that came.
  std::int64_t rows_sent = 0;           // [nodes]
  std::int64_t rows_received = 0;       // [delegates]
  std::int64_t sums_sent = 0;           // [delegates]
  std::int64_t sums_received = 0;       // [nodes]
  std::int64_t blocks_received = 0;     // [delegates]
  std::int64_t gradients_received = 0;  // [nodes]
  std::int64_t outbox = 0;              // a message and its tables
  std::int64_t inbox = 0;               // [delegates][kNumBanks] the same
  std::int64_t block_outbox = 0;        // a message
  std::int64_t block_inbox = 0;         // [delegates][kNumBanks]
  std::int64_t rows_out = 0;            // [nodes][slots] chunks
  std::int64_t rows_in = 0;             // [delegates][slots]
  std::int64_t sums_out = 0;            // [delegates][slots]
  std::int64_t sums_in = 0;             // [nodes][slots]
  std::int64_t gradients_out = 0;       // [delegates] fp32 [T][K]
  std::int64_t gradients_in = 0;        // [nodes] fp32 [T][K]
  std::int64_t total_bytes = 0;         // of segment 0

  EP_HOST_DEVICE constexpr std::int64_t message_bytes() const {
    return round_up(kNetMessageBytes + 8 * shape.max_entries(), kLineBytes);
  }
  EP_HOST_DEVICE constexpr std::int64_t delegate(int index) const {
    return delegates + index * delegate_bytes;
  }
  EP_HOST_DEVICE constexpr std::int64_t inbox_of(int index, std::uint64_t epoch) const {
    return inbox + (std::int64_t{index} * kNumBanks + bank_of(epoch)) * message_bytes();
  }
  EP_HOST_DEVICE constexpr std::int64_t block_inbox_of(int index, std::uint64_t epoch) const {
    return block_inbox + (std::int64_t{index} * kNumBanks + bank_of(epoch)) * kNetMessageBytes;
  }
  /// The place of chunk `number` of an array of rings; `lane` is a node or a delegate.
  EP_HOST_DEVICE constexpr std::int64_t chunk(std::int64_t ring,
                                              int lane,
                                              std::uint64_t number) const {
    return ring + (std::int64_t{lane} * shape.num_slots + slot_of(number)) * shape.chunk_bytes();
  }
  EP_HOST_DEVICE constexpr std::int64_t gradients_of(std::int64_t array, int lane) const {
    return array + round_up(4 * shape.max_entries(), kLineBytes) * lane;
  }

  EP_HOST_DEVICE constexpr int slot_of(std::uint64_t number) const {
    return static_cast<int>(number % static_cast<std::uint64_t>(shape.num_slots));
  }
  /// How often a slot was used before chunk `number`.
  EP_HOST_DEVICE constexpr std::uint64_t uses_before(std::uint64_t number) const {
    return number / static_cast<std::uint64_t>(shape.num_slots);
  }
  EP_HOST_DEVICE constexpr std::uint32_t slot_signal(std::uint32_t first,
                                                     int lane,
                                                     std::uint64_t number) const {
    return first + static_cast<std::uint32_t>(lane * shape.num_slots + slot_of(number));
  }
};

EP_HOST_DEVICE constexpr NetSignals make_net_signals(const NetShape& shape) {
  const auto nodes = static_cast<std::uint32_t>(shape.num_nodes);
  const auto delegates = static_cast<std::uint32_t>(shape.max_delegates);
  const auto slots = static_cast<std::uint32_t>(shape.num_slots);
  NetSignals signals;
  std::uint32_t end = 0;
  const auto add = [&end](std::uint32_t count) {
    end += count;
    return end - count;
  };
  signals.messages = add(delegates);
  signals.blocks = add(delegates);
  signals.rows = add(delegates * slots);
  signals.rows_freed = add(nodes * slots);
  signals.sums = add(nodes * slots);
  signals.sums_freed = add(delegates * slots);
  signals.gradients = add(nodes);
  signals.num_signals = end;
  return signals;
}

EP_HOST_DEVICE constexpr NetLayout make_net_layout(const ControlLayout& control,
                                                   const NetShape& shape) {
  NetLayout layout{.shape = shape, .signals = make_net_signals(shape)};
  const std::int64_t nodes = shape.num_nodes;
  const std::int64_t delegates = shape.max_delegates;
  Regions regions;
  regions.add_bytes(control.total_bytes);
  layout.delegate_bytes = round_up(control.total_bytes, kLineBytes);
  layout.delegates = regions.add_bytes(delegates * layout.delegate_bytes);
  layout.rows_sent = regions.add<std::uint64_t>(nodes);
  layout.rows_received = regions.add<std::uint64_t>(delegates);
  layout.sums_sent = regions.add<std::uint64_t>(delegates);
  layout.sums_received = regions.add<std::uint64_t>(nodes);
  layout.blocks_received = regions.add<std::uint64_t>(delegates);
  layout.gradients_received = regions.add<std::uint64_t>(nodes);
  layout.outbox = regions.add_bytes(layout.message_bytes());
  layout.inbox = regions.add_bytes(delegates * kNumBanks * layout.message_bytes());
  layout.block_outbox = regions.add_bytes(kNetMessageBytes);
  layout.block_inbox = regions.add_bytes(delegates * kNumBanks * kNetMessageBytes);
  const std::int64_t ring_bytes = shape.num_slots * shape.chunk_bytes();
  layout.rows_out = regions.add_bytes(nodes * ring_bytes);
  layout.rows_in = regions.add_bytes(delegates * ring_bytes);
  layout.sums_out = regions.add_bytes(delegates * ring_bytes);
  layout.sums_in = regions.add_bytes(nodes * ring_bytes);
  const std::int64_t gradient_bytes = round_up(4 * shape.max_entries(), kLineBytes);
  layout.gradients_out = regions.add_bytes(delegates * gradient_bytes);
  layout.gradients_in = regions.add_bytes(nodes * gradient_bytes);
  layout.total_bytes = regions.total_bytes();
  return layout;
}

}  // namespace ep::layout
