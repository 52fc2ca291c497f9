// SPDX-License-Identifier: Apache-2.0
// What happened in a run, for Perfetto or chrome://tracing: a process per rank, a track per agent.
#pragma once

#include "fabric/sim/vector_clock.h"

#include <cstdint>
#include <string>
#include <vector>

namespace ep::fabric::sim {

class Trace {
 public:
  void name_track(int rank, AgentId agent, const std::string& name);
  /// `what` at a virtual time; `where` and `value` are shown with it.
  void add(int rank,
           AgentId agent,
           std::uint64_t at_ns,
           const char* what,
           std::string where,
           std::uint64_t value = 0);
  /// False if the file could not be written.
  bool write(const std::string& path) const;

 private:
  struct Track {
    int rank;
    AgentId agent;
    std::string name;
  };
  struct Event {
    int rank;
    AgentId agent;
    std::uint64_t at_ns;
    const char* what;
    std::string where;
    std::uint64_t value;
  };
  std::vector<Track> tracks_;
  std::vector<Event> events_;
};

}  // namespace ep::fabric::sim
