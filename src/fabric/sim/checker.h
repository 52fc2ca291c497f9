// SPDX-License-Identifier: Apache-2.0
// The memory model (docs/memory_model.md) as a check: which accesses are ordered, and which are not
// although they must be.
#pragma once

#include "fabric/sim/random.h"
#include "fabric/sim/site.h"
#include "fabric/sim/space.h"
#include "fabric/sim/vector_clock.h"
#include "fabric/sim/word.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ep::fabric::sim {

/// Two accesses conflict if they touch the same granule and one of them writes. They must be
/// ordered by what their agents have released to and acquired from each other, unless both are
/// atomic and reach each other's rank. Ordered means: the later agent's view covers the moment of
/// the earlier access. So a race is found in whichever order the two happened to come.
class Checker {
 public:
  struct Options {
    int stale_percent = 0;  ///< of the loads that may see an older store
    /// Names an address: "rank 1, ring_payload + 0x40".
    std::function<std::string(const std::byte*)> describe{};
  };

  Checker(Space& space, Sites& sites, Random& random, Options options);

  AgentId add_agent(int rank, std::string name);
  int rank_of(AgentId agent) const { return agents_[agent].rank; }
  const std::string& name_of(AgentId agent) const { return agents_[agent].name; }
  std::size_t num_agents() const { return agents_.size(); }
  /// What the agent has seen, itself included.
  VectorClock& view(AgentId agent) { return agents_[agent].view; }
  /// What the agent does from now on is not covered by what was handed out of its view so far.
  void tick(AgentId agent) { view(agent).raise(agent, view(agent).of(agent) + 1); }

  /// Who makes a plain access, and what had to come before it.
  struct Actor {
    AgentId agent;
    Clock clock;
    const VectorClock* view;
    bool is_async = false;
  };
  Actor actor(AgentId agent) { return {agent, view(agent).of(agent), &view(agent)}; }
  void read(const Actor& actor, const void* address, std::size_t bytes, SiteId site);
  void write(const Actor& actor, const void* address, std::size_t bytes, SiteId site);

  /// An atomic access of 4 or 8 aligned bytes. Memory that is not watched is accessed all the same.
  struct Atomic {
    AgentId agent;
    void* address;
    int bytes;
    Scope scope;
    bool acquires = false;
    bool releases = false;
    SiteId site = 0;
  };
  struct Loaded {
    std::uint64_t value;
    bool is_newest;
  };
  Loaded load(const Atomic& op);
  void store(const Atomic& op, std::uint64_t value);
  /// Stores what `change` makes of the newest value, returns that value. `change` returns false to
  /// store nothing.
  using Change = bool (*)(std::uint64_t before,
                          std::uint64_t operand,
                          std::uint64_t expected,
                          std::uint64_t& after);
  std::uint64_t modify(const Atomic& op,
                       Change change,
                       std::uint64_t operand,
                       std::uint64_t expected = 0);

  /// Something other than a race went wrong.
  void report(const std::string& text);
  /// Reports against the rules of an agent, at a site.
  void report(AgentId agent, SiteId site, const std::string& text);
  const std::vector<std::string>& violations() const { return violations_; }

  /// In steps of the scheduler; old stores fade by it.
  void set_time(std::uint64_t time) { time_ = time; }

 private:
  struct SyncNote {
    Clock clock = 0;
    SiteId site = 0;
    bool is_release = false;
  };
  struct Agent {
    int rank;
    std::string name;
    VectorClock view;
    std::array<SyncNote, 16> notes{};  // the newest releases and acquires
    std::size_t num_notes = 0;
  };
  static constexpr std::size_t kMaxViolations = 4;

  void touch(Cell& cell, const Actor& actor, const Access& now, const void* address);
  void keep_others(Cell& cell, const Actor& actor, const Access& now);
  void replace_write(Cell& cell, const Actor& actor, const Access& now);
  void touch_all(const Actor& actor, Access now, const void* address, std::size_t bytes);
  bool is_ordered(const Access& before, const Actor& actor) const;
  bool conflict(const Access& before, const Actor& actor, const Access& now) const;
  void report_race(const Access& before, const Access& now, const void* address);
  std::string describe(const Access& access) const;
  std::string orders_around(const Access& before, const Access& now) const;

  Word& word_at(const Atomic& op);
  void touch_word(const Atomic& op, bool is_write);
  void acquire(const Atomic& op, const Word::Store& store);
  void note(AgentId agent, SiteId site, bool is_release);

  Space& space_;
  Sites& sites_;
  Random& random_;
  Options options_;
  std::deque<Agent> agents_;
  std::deque<Word> words_;
  std::vector<std::vector<Access>> others_;
  std::vector<std::string> violations_;
  std::uint64_t time_ = 0;
};

}  // namespace ep::fabric::sim
