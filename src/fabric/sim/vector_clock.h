// SPDX-License-Identifier: Apache-2.0
// Who has seen how much of whom.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ep::fabric::sim {

/// Whatever accesses memory on its own: a thread of a lane, the host of a rank, a copy unit's
/// loads or stores, a network context.
using AgentId = std::uint16_t;
/// An agent's own time; its first moment is 1.
using Clock = std::uint32_t;

/// For each agent, up to which of its moments everything is visible.
class VectorClock {
 public:
  Clock of(AgentId agent) const { return agent < clocks_.size() ? clocks_[agent] : 0; }
  bool covers(AgentId agent, Clock clock) const { return clock <= of(agent); }

  void raise(AgentId agent, Clock clock) {
    if (agent >= clocks_.size()) clocks_.resize(std::size_t{agent} + 1);
    clocks_[agent] = std::max(clocks_[agent], clock);
  }
  void join(const VectorClock& other) {
    if (clocks_.size() < other.clocks_.size()) clocks_.resize(other.clocks_.size());
    for (std::size_t i = 0; i < other.clocks_.size(); ++i)
      clocks_[i] = std::max(clocks_[i], other.clocks_[i]);
  }

 private:
  std::vector<Clock> clocks_;
};

}  // namespace ep::fabric::sim
