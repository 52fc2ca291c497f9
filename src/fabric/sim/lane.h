// SPDX-License-Identifier: Apache-2.0
// What the threads of a simulated lane share.
#pragma once

#include "fabric/sim/copy_unit.h"
#include "fabric/sim/group.h"

#include <string>
#include <vector>

namespace ep::fabric::sim {

/// Lives as long as its machine; one launch after another uses it.
struct Lane {
  Lane(Machine& machine, int rank, std::string lane_name, int num_threads)
      : name(std::move(lane_name)), rendezvous(num_threads), copies(machine, rank, name) {
    for (int thread = 0; thread < num_threads; ++thread) {
      const std::string thread_name = name + ", thread " + std::to_string(thread);
      agents.push_back(machine.checker().add_agent(rank, thread_name));
    }
  }

  std::string name;
  /// False: rows are copied and added by the threads, as on GPUs that have no bulk copy unit.
  bool has_copy_unit = true;
  Rendezvous rendezvous;
  CopyUnit copies;
  std::vector<AgentId> agents;  ///< of its threads
  std::byte* scratch = nullptr;
  std::size_t scratch_bytes = 0;
};

}  // namespace ep::fabric::sim
