// SPDX-License-Identifier: Apache-2.0
// Settings of the engine, equal on all ranks, and the memory that they cost.
#pragma once

#include "base/deadline.h"
#include "fabric/net/transport.h"

#include <ep/status.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace ep::fabric {

struct NetConfig {
  int num_contexts = 1;  ///< at most what the transport has
  std::int64_t num_signals = 1024;
  std::int64_t num_counters = 64;

  /// Puts of one context to one peer whose source is not free yet: a power of two.
  int window_ops = 64;
  /// Their bytes. A larger put goes alone.
  std::int64_t window_bytes = std::int64_t{4} << 20;
  /// Writes with an immediate, of one context from one peer, that the receiver has not
  /// acknowledged: what its completion queue must hold.
  int arrival_window = 256;
  /// Cells for strong signals of one context from one peer; half of them may be open. A power of
  /// two, at most 256.
  int epoch_ring = 64;
  /// The same for weak signals that do not fit an immediate; at most 8192.
  int part_ring = 64;

  std::chrono::milliseconds heartbeat{100};
  std::chrono::milliseconds suspect_after{1'000};
  /// Silence after which a peer that is pinged counts as dead for good.
  std::chrono::milliseconds dead_after{30'000};
  /// A parked thread answers peers while no caller makes progress.
  bool has_service_thread = true;

  /// A peer's message; called where progress is made. May not call the engine.
  std::function<void(int peer, std::span<const std::byte> message)> on_message{};
  /// A peer died or left: nothing reaches it any more. Called once, by whoever notices. May not
  /// call the engine.
  std::function<void(int peer)> on_death{};
  /// Where all numbers of the protocol begin. Tests start shortly before they wrap.
  std::uint64_t first_number = 0;
  std::int64_t (*clock_ns)() = base::now_ns;
};

/// Errors: kInvalidArgument with the field, its value and its range.
Status validate(const NetConfig& config);

/// Bytes that an engine allocates.
struct NetPlan {
  std::int64_t scratch_bytes = 0;  ///< registered with the network
  std::int64_t stream_bytes = 0;   ///< state of contexts and peers
  std::int64_t table_bytes = 0;    ///< signals, counters, peers
  std::int64_t total_bytes() const { return scratch_bytes + stream_bytes + table_bytes; }
  friend bool operator==(const NetPlan&, const NetPlan&) = default;
};

/// How much of an operation is over.
enum class FlushScope : std::uint8_t {
  kLocal,   ///< the sources may be reused
  kRemote,  ///< the bytes have landed
};

/// What one context has exchanged with one peer, or sums of that.
struct NetCounters {
  std::uint64_t puts = 0;  ///< with bytes
  std::uint64_t put_bytes = 0;
  std::uint64_t gets = 0;
  std::uint64_t get_bytes = 0;
  std::uint64_t signals = 0;   ///< sent
  std::uint64_t messages = 0;  ///< writes and reads given to the network, those of the engine too
  std::uint64_t arrivals = 0;  ///< immediates that came in
  std::uint64_t stale = 0;     ///< of those, dropped: from an earlier life of the peer

  NetCounters& operator+=(const NetCounters& other);
};

}  // namespace ep::fabric
