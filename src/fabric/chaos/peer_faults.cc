// SPDX-License-Identifier: Apache-2.0
// Faults begin at an event of their peer; only a stop ends.
#include "fabric/chaos/peer_faults.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>

namespace ep::fabric {
namespace {

ChaosPeerState state_of(ChaosFault::Kind kind) {
  switch (kind) {
    case ChaosFault::Kind::kBlackHole:
      return ChaosPeerState::kVanished;
    case ChaosFault::Kind::kReset:
      return ChaosPeerState::kReset;
    case ChaosFault::Kind::kStop:
      return ChaosPeerState::kStopped;
    case ChaosFault::Kind::kFailOneOp:
      break;
  }
  return ChaosPeerState::kAlive;
}

}  // namespace

PeerFaults::PeerFaults(std::span<const ChaosFault> faults, int num_ranks)
    : num_events_(static_cast<std::size_t>(num_ranks)) {
  for (const ChaosFault& fault : faults) {
    faults_.push_back({.what = fault});
    if (fault.error == 0) faults_.back().what.error = ECONNRESET;
  }
}

void PeerFaults::note_event(int peer) {
  if (!has_any()) return;
  const std::lock_guard lock(mutex_);
  const std::uint64_t event = num_events_[static_cast<std::size_t>(peer)]++;
  for (Fault& fault : faults_) {
    if (fault.what.peer != peer || event < fault.what.at_event || fault.has_begun) continue;
    fault.has_begun = true;
    fault.began_at_poll = num_polls_;
  }
}

int PeerFaults::take_failure(int peer) {
  if (!has_any()) return 0;
  const std::lock_guard lock(mutex_);
  for (Fault& fault : faults_) {
    const bool fails = fault.what.kind == ChaosFault::Kind::kFailOneOp && fault.what.peer == peer;
    if (!fails || !fault.has_begun || fault.is_used) continue;
    fault.is_used = true;
    return fault.what.error;
  }
  return 0;
}

void PeerFaults::note_poll() {
  if (!has_any()) return;
  const std::lock_guard lock(mutex_);
  ++num_polls_;
}

bool PeerFaults::is_on(const Fault& fault) const {
  if (!fault.has_begun) return false;
  return fault.what.kind != ChaosFault::Kind::kStop ||
         num_polls_ - fault.began_at_poll < static_cast<std::uint64_t>(fault.what.polls);
}

ChaosPeerState PeerFaults::state(int peer) const {
  ChaosPeerState worst = ChaosPeerState::kAlive;
  if (!has_any()) return worst;
  const std::lock_guard lock(mutex_);
  for (const Fault& fault : faults_) {
    if (fault.what.peer == peer && is_on(fault)) worst = std::max(worst, state_of(fault.what.kind));
  }
  return worst;
}

int PeerFaults::error(int peer) const {
  const std::lock_guard lock(mutex_);
  for (const Fault& fault : faults_) {
    if (fault.what.peer == peer && fault.what.kind == ChaosFault::Kind::kReset) {
      return fault.what.error;
    }
  }
  return 0;
}

}  // namespace ep::fabric
