// SPDX-License-Identifier: Apache-2.0
// States of peers; the first failure is kept.
#include "fabric/net/peer_table.h"

#include <utility>

namespace ep::fabric {

const char* name_of(PeerState state) {
  switch (state) {
    case PeerState::kOk:
      return "ok";
    case PeerState::kSuspected:
      return "suspected";
    case PeerState::kDead:
      return "dead";
  }
  return "unknown";
}

PeerTable::PeerTable(int num_ranks, std::int64_t now_ns, std::function<void(int peer)> on_death)
    : peers_(static_cast<std::size_t>(num_ranks)), on_death_(std::move(on_death)) {
  for (Peer& peer : peers_) peer.last_heard_ns.store(now_ns, std::memory_order_relaxed);
}

void PeerTable::set_suspected(int peer, bool is_suspected) {
  PeerState from = is_suspected ? PeerState::kOk : PeerState::kSuspected;
  const PeerState to = is_suspected ? PeerState::kSuspected : PeerState::kOk;
  // An exchange: death is for good, whoever declares it meanwhile.
  peers_[at(peer)].state.compare_exchange_strong(from, to, std::memory_order_relaxed);
}

void PeerTable::kill(int peer, Status reason) {
  reason.set_peer(peer);
  {
    const std::scoped_lock lock(mutex_);
    Peer& state = peers_[at(peer)];
    if (!state.reason.ok()) return;
    state.reason = reason;
    if (failure_.ok()) failure_ = std::move(reason);
    state.state.store(PeerState::kDead, std::memory_order_relaxed);
    has_failed_.store(true, std::memory_order_relaxed);
  }
  if (on_death_) on_death_(peer);
}

void PeerTable::fail(Status reason) {
  const std::scoped_lock lock(mutex_);
  if (failure_.ok()) failure_ = std::move(reason);
  has_failed_.store(true, std::memory_order_relaxed);
}

Status PeerTable::failure() const {
  const std::scoped_lock lock(mutex_);
  return failure_;
}

Status PeerTable::reason(int peer) const {
  const std::scoped_lock lock(mutex_);
  return peers_[at(peer)].reason;
}

std::int64_t PeerTable::memory_bytes() const {
  return static_cast<std::int64_t>(peers_.capacity() * sizeof(Peer));
}

std::int64_t PeerTable::planned_bytes(int num_ranks) {
  return static_cast<std::int64_t>(static_cast<std::size_t>(num_ranks) * sizeof(Peer));
}

}  // namespace ep::fabric
