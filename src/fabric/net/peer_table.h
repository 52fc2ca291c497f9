// SPDX-License-Identifier: Apache-2.0
// What an engine knows of its peers' health, and why it failed first. Any thread.
#pragma once

#include <ep/status.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace ep::fabric {

enum class PeerState : std::uint8_t {
  kOk,
  kSuspected,  ///< does not answer pings; may come back
  kDead,       ///< for good: nothing is sent to it, and what it sends is dropped
};
const char* name_of(PeerState state);

class PeerTable {
 public:
  /// `on_death` is called once for each peer that dies, by whoever notices.
  PeerTable(int num_ranks, std::int64_t now_ns, std::function<void(int peer)> on_death = {});

  // Relaxed throughout: a state is a reason to stop, and publishes nothing. Its text has the mutex.
  PeerState state(int peer) const { return peers_[at(peer)].state.load(std::memory_order_relaxed); }
  bool is_dead(int peer) const { return state(peer) == PeerState::kDead; }
  std::int64_t last_heard_ns(int peer) const {
    return peers_[at(peer)].last_heard_ns.load(std::memory_order_relaxed);
  }
  void heard(int peer, std::int64_t now_ns) {
    peers_[at(peer)].last_heard_ns.store(now_ns, std::memory_order_relaxed);
  }
  /// Whether pings go to it while somebody waits.
  bool is_watched(int peer) const {
    return peers_[at(peer)].is_watched.load(std::memory_order_relaxed);
  }
  void watch(int peer) { peers_[at(peer)].is_watched.store(true, std::memory_order_relaxed); }

  /// Not for dead ones.
  void set_suspected(int peer, bool is_suspected);
  /// The peer is dead, for this reason; the first one counts. The engine has failed.
  void kill(int peer, Status reason);
  /// The engine has failed, through no peer's fault.
  void fail(Status reason);

  bool has_failed() const { return has_failed_.load(std::memory_order_relaxed); }
  /// The first failure.
  Status failure() const;
  /// Why the peer is dead; ok if it is not.
  Status reason(int peer) const;

  std::int64_t memory_bytes() const;
  static std::int64_t planned_bytes(int num_ranks);

 private:
  struct Peer {
    std::atomic<PeerState> state{PeerState::kOk};
    std::atomic<bool> is_watched{false};
    std::atomic<std::int64_t> last_heard_ns{0};
    Status reason{};
  };

  static std::size_t at(int peer) { return static_cast<std::size_t>(peer); }

  std::vector<Peer> peers_;
  const std::function<void(int)> on_death_;
  std::atomic<bool> has_failed_{false};
  mutable std::mutex mutex_;  ///< guards what follows, and reasons
  Status failure_{};
};

}  // namespace ep::fabric
