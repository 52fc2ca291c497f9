// SPDX-License-Identifier: Apache-2.0
// What the contexts of an engine have in common.
#pragma once

#include "fabric/net/net_config.h"
#include "fabric/net/peer_table.h"
#include "fabric/net/scratch_layout.h"
#include "fabric/net/transport.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

namespace ep::fabric {

/// The transport's number of the engine's own window; the caller's follow.
inline constexpr WindowId kScratchWindow = 0;

struct NetShared {
  NetShared(std::unique_ptr<Transport> net, const NetConfig& settings);

  int rank() const { return transport->rank(); }
  int num_ranks() const { return transport->num_ranks(); }
  bool is_ordered() const { return transport->traits().order == ArrivalOrder::kOrdered; }
  std::uint64_t incarnation() const { return incarnations[static_cast<std::size_t>(rank())]; }
  std::uint64_t incarnation_of(int peer) const {
    return incarnations[static_cast<std::size_t>(peer)];
  }

  /// Of a window of the caller's, on a rank.
  bool contains(int peer, const WindowPlace& place, std::int64_t bytes) const;

  /// A cell that a peer may be writing again meanwhile is copied first, then judged.
  template <class Cell>
  Cell load_cell(std::int64_t offset) const {
    Cell cell;
    std::memcpy(&cell, scratch.get() + offset, sizeof(Cell));
    return cell;
  }
  template <class Cell>
  void store_cell(std::int64_t offset, const Cell& cell) {
    std::memcpy(scratch.get() + offset, &cell, sizeof(Cell));
  }

  bool is_slot(std::uint32_t slot) const {
    return static_cast<std::int64_t>(slot) < config.num_signals;
  }
  void add_signal(std::uint32_t slot, std::uint64_t add) {
    // [sync:net-signal] release: the writes that the signal speaks of.
    signals[slot].fetch_add(add, std::memory_order_release);
  }
  void add_counter(std::uint32_t counter) {
    // [sync:net-counter] release: the bytes that a get has brought.
    counters[counter].fetch_add(1, std::memory_order_release);
  }

  std::int64_t table_bytes() const;

  const NetConfig config;
  const ScratchLayout layout;
  struct Free {
    void operator()(std::byte* memory) const;
  };
  /// Outlives the transport, which may still write into it.
  const std::unique_ptr<std::byte, Free> scratch;
  const std::unique_ptr<std::atomic<std::uint64_t>[]> signals;
  const std::unique_ptr<std::atomic<std::uint64_t>[]> counters;
  const std::unique_ptr<Transport> transport;
  PeerTable peers;
  std::vector<std::uint64_t> incarnations;
  /// Of the caller's windows: element window * num_ranks + rank.
  std::vector<std::int64_t> window_bytes;
};

}  // namespace ep::fabric
