// SPDX-License-Identifier: Apache-2.0
// Which peers are dead or stopped: shared by the contexts of a transport.
#pragma once

#include "fabric/chaos/chaos.h"

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

namespace ep::fabric {

enum class ChaosPeerState : std::uint8_t { kAlive, kStopped, kReset, kVanished };

class PeerFaults {
 public:
  PeerFaults(std::span<const ChaosFault> faults, int num_ranks);

  /// Without faults no call does anything, and contexts share nothing.
  bool has_any() const { return !faults_.empty(); }
  /// An operation to the peer, or an arrival from it.
  void note_event(int peer);
  /// The errno with which the next operation to the peer fails, once; 0: it does not.
  int take_failure(int peer);
  void note_poll();
  ChaosPeerState state(int peer) const;
  /// Of the peer's reset.
  int error(int peer) const;

 private:
  struct Fault {
    ChaosFault what;
    std::uint64_t began_at_poll = 0;
    bool has_begun = false;
    bool is_used = false;  ///< kFailOneOp
  };
  bool is_on(const Fault& fault) const;

  mutable std::mutex mutex_;
  std::vector<Fault> faults_;
  std::vector<std::uint64_t> num_events_;  // by peer
  std::uint64_t num_polls_ = 0;
};

}  // namespace ep::fabric
