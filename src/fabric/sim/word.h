// SPDX-License-Identifier: Apache-2.0
// An atomic word: the stores that a load may still see, and what each of them publishes.
#pragma once

#include "fabric/sim/random.h"
#include "fabric/sim/space.h"
#include "fabric/sim/vector_clock.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace ep::fabric::sim {

/// Which agents an atomic access is ordered with (primitives/memory.h).
enum class Scope : std::uint8_t { kGpu, kSys };

/// What the releases behind a value make visible to whoever acquires it. A release of scope gpu
/// reaches the agents of its rank alone.
class Released {
 public:
  /// The release sequence goes on: what `before` published (may be null), and this release.
  static std::shared_ptr<const Released> extend(const Released* before,
                                                int rank,
                                                Scope scope,
                                                const VectorClock& view);
  /// Joins what reaches an acquire of that rank and scope.
  void acquire(int rank, Scope scope, VectorClock& view) const;

 private:
  struct Part {
    int rank;
    Scope scope;
    VectorClock view;
  };
  std::vector<Part> parts_;
};

/// The modification order of a word, as far back as somebody may still see it.
///
/// A relaxed or acquire load need not see the newest store: it may see any that no store follows
/// which the loading agent knows of, and none older than what it, or whoever it has acquired from,
/// saw before (coherence). A read-modify-write sees the newest.
class Word {
 public:
  struct Store {
    std::uint64_t value = 0;
    Access by;
    std::shared_ptr<const Released> released;  ///< null: publishes nothing
    std::uint64_t replaced_at = 0;             ///< time of the store that followed
  };

  bool is_known() const { return !stores_.empty(); }
  /// Plain stores went over it: what was known is void.
  void forget();
  void push(Store store, std::uint64_t time);
  const Store& newest() const { return stores_.back(); }

  /// What a load by this agent sees; now and then, by chance, not the newest.
  const Store& load(AgentId agent,
                    const VectorClock& view,
                    std::uint64_t time,
                    Random& random,
                    int stale_percent);
  /// The agent has seen the newest store, or made it.
  void note_seen(AgentId agent, const VectorClock& view);

 private:
  struct Seen {
    AgentId agent;
    Clock clock;
    std::uint64_t serial;
  };
  static constexpr std::size_t kMaxStores = 8;
  /// A store becomes visible to everybody after this many steps.
  static constexpr std::uint64_t kMaxAge = 400;

  std::uint64_t newest_serial() const { return first_serial_ + stores_.size() - 1; }
  std::uint64_t oldest_visible(AgentId agent, const VectorClock& view, std::uint64_t time) const;
  void note_seen(AgentId agent, const VectorClock& view, std::uint64_t serial);

  std::vector<Store> stores_;
  std::uint64_t first_serial_ = 0;
  std::vector<Seen> seen_;
};

}  // namespace ep::fabric::sim
