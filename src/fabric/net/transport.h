// SPDX-License-Identifier: Apache-2.0
// What a network does for one rank: writes into a peer's windows, reads from them, and immediates
// that say that a write has landed. Signals, credits and liveness are made from this by NetEngine.
#pragma once

#include <ep/status.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ep::fabric {

/// What an immediate that arrives says about other writes of its context from its peer.
enum class ArrivalOrder : std::uint8_t {
  kOrdered,    ///< all earlier ones have landed, too
  kUnordered,  ///< nothing: only its own write has landed, all of it
};

struct TransportTraits {
  std::string name;  ///< of the provider
  ArrivalOrder order = ArrivalOrder::kUnordered;
  /// Independent ordering domains, each with completions of its own.
  int num_contexts = 1;
  std::int64_t max_write_bytes = std::int64_t{1} << 30;
  /// Writes and reads of one context that were posted and have not completed.
  int max_outstanding = 256;
};

/// Memory that was registered with the transport: number of the call, from 0, equal on all ranks.
using WindowId = int;

struct WindowPlace {
  WindowId window = 0;
  std::int64_t offset = 0;
};

/// `bytes` may be 0 where there is an immediate; the places must then still lie in their windows.
struct WriteOp {
  int peer = 0;
  int context = 0;
  WindowPlace src{};  ///< in a window of this rank; may not change until kSourceFree
  WindowPlace dst{};  ///< in a window of the peer
  std::int64_t bytes = 0;
  std::optional<std::uint32_t> immediate{};
  std::uint64_t cookie = 0;  ///< comes back with kSourceFree
  /// Another operation of this context follows before the next poll: it may travel with this one.
  bool has_more = false;
};

struct ReadOp {
  int peer = 0;
  int context = 0;
  WindowPlace dst{};  ///< in a window of this rank
  WindowPlace src{};  ///< in a window of the peer
  std::int64_t bytes = 0;
  std::uint64_t cookie = 0;  ///< comes back with kReadDone
};

struct NetEvent {
  enum class Kind : std::uint8_t {
    kSourceFree,  ///< a write of this rank: its source may be reused; it may not have landed yet
    kReadDone,    ///< a read of this rank: its bytes are here
    kArrival,     ///< a write of `peer` with an immediate has landed here, all of it
    kFailure,     ///< an operation of this rank to `peer` failed; `error` says why
  };
  Kind kind = Kind::kArrival;
  int peer = 0;
  std::uint32_t immediate = 0;  ///< kArrival
  std::uint64_t cookie = 0;     ///< of the operation, all other kinds
  int error = 0;                ///< kFailure: errno
};

enum class Posted : std::uint8_t {
  kYes,
  kBusy,    ///< nothing was posted: poll, then try again; the peer may also be dead
  kFailed,  ///< nothing was posted, and never will be: see Transport::failure
};

/// Made connected: whoever makes one has met all peers. A context belongs to one thread at a time;
/// different contexts may be used at once. Nothing is delivered twice, and nothing is lost unless
/// the peer dies.
class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  /// Local. Nobody writes to this rank's windows after it returns.
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int num_ranks() const = 0;
  virtual const TransportTraits& traits() const = 0;

  /// Local; no context may be in use meanwhile. The memory must outlive the transport.
  virtual Result<WindowId> add_window(std::span<std::byte> memory) = 0;
  /// What a peer needs in order to reach a window of this rank: for its set_peer_window.
  virtual std::vector<std::byte> describe_window(WindowId window) const = 0;
  /// kFabric for bytes that are no description. Every access is checked against the window's size
  /// on the side that posts it.
  virtual Status set_peer_window(int peer,
                                 WindowId window,
                                 std::span<const std::byte> description) = 0;

  /// kFailed with kInvalidArgument as failure() for places outside their windows.
  virtual Posted write(const WriteOp& op) = 0;
  virtual Posted read(const ReadOp& op) = 0;

  /// Makes progress, also for what peers do here. Returns how many events it stored.
  virtual int poll(int context, std::span<NetEvent> events) = 0;
  /// Sleeps until there is something to poll, at most that long.
  virtual void sleep(int context, std::chrono::milliseconds at_most) = 0;

  /// Why the last operation of the context was kFailed.
  virtual Status failure(int context) const = 0;
};

}  // namespace ep::fabric
