// SPDX-License-Identifier: Apache-2.0
// Modification order of an atomic word.
#include "fabric/sim/word.h"

#include <algorithm>
#include <utility>

namespace ep::fabric::sim {

std::shared_ptr<const Released> Released::extend(const Released* before,
                                                 int rank,
                                                 Scope scope,
                                                 const VectorClock& view) {
  auto released = std::make_shared<Released>();
  if (before != nullptr) released->parts_ = before->parts_;
  for (Part& part : released->parts_) {
    if (part.rank != rank || part.scope != scope) continue;
    part.view.join(view);
    return released;
  }
  released->parts_.push_back({rank, scope, view});
  return released;
}

void Released::acquire(int rank, Scope scope, VectorClock& view) const {
  for (const Part& part : parts_) {
    const bool is_reached = part.scope == Scope::kSys && scope == Scope::kSys;
    if (part.rank == rank || is_reached) view.join(part.view);
  }
}

void Word::forget() {
  first_serial_ += stores_.size();
  stores_.clear();
  seen_.clear();
}

void Word::push(Store store, std::uint64_t time) {
  if (!stores_.empty()) stores_.back().replaced_at = time;
  stores_.push_back(std::move(store));
  if (stores_.size() <= kMaxStores) return;
  stores_.erase(stores_.begin());
  ++first_serial_;
}

std::uint64_t Word::oldest_visible(AgentId agent,
                                   const VectorClock& view,
                                   std::uint64_t time) const {
  std::uint64_t oldest = first_serial_;
  for (std::size_t i = stores_.size(); i-- > 0;) {
    const Store& store = stores_[i];
    const bool is_old = i + 1 < stores_.size() && time - store.replaced_at > kMaxAge;
    const bool is_known = store.by.agent == agent || view.covers(store.by.agent, store.by.clock);
    if (!is_known && !is_old) continue;
    oldest = first_serial_ + i + (is_old && !is_known ? 1 : 0);
    break;
  }
  for (const Seen& seen : seen_) {
    if (seen.agent == agent || view.covers(seen.agent, seen.clock))
      oldest = std::max(oldest, seen.serial);
  }
  return oldest;
}

const Word::Store& Word::load(
    AgentId agent, const VectorClock& view, std::uint64_t time, Random& random, int stale_percent) {
  std::uint64_t serial = newest_serial();
  if (stores_.size() > 1 && random.chance(stale_percent)) {
    const std::uint64_t oldest = oldest_visible(agent, view, time);
    serial = oldest + random.below(serial - oldest + 1);
  }
  note_seen(agent, view, serial);
  return stores_[serial - first_serial_];
}

void Word::note_seen(AgentId agent, const VectorClock& view) {
  note_seen(agent, view, newest_serial());
}

void Word::note_seen(AgentId agent, const VectorClock& view, std::uint64_t serial) {
  for (Seen& seen : seen_) {
    if (seen.agent != agent) continue;
    // Whoever sees the agent at this moment, and not before, is bound by it.
    if (seen.serial != serial) seen = {agent, view.of(agent), serial};
    return;
  }
  seen_.push_back({agent, view.of(agent), serial});
}

}  // namespace ep::fabric::sim
