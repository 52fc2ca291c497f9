// SPDX-License-Identifier: Apache-2.0
// Searches seeds for violations, and mutants for a seed that finds them.
#pragma once

#include "fabric/sim/site.h"

#include <cstdint>
#include <string>
#include <vector>

namespace ep::test {

struct SearchResult {
  std::uint64_t num_runs = 0;
  std::uint64_t num_steps = 0;
  /// Of the first seed that has any; with the command that replays it.
  std::string findings{};
  /// Everything that can be left out, as the runs met it.
  std::vector<fabric::sim::Mutation> orders_met{};
};
/// Seeds [first, first + count), in `num_jobs` processes.
SearchResult search_seeds(std::uint64_t first, std::uint64_t count, int num_jobs);

struct MutantResult {
  fabric::sim::Mutation mutation{};
  std::uint64_t seed = 0;  ///< the first that finds it; 0: none
  std::string scenario{};
  std::string finding{};
};
/// For each mutation: the first of seeds [1, most] that finds it.
std::vector<MutantResult> search_mutants(const std::vector<fabric::sim::Mutation>& mutations,
                                         std::uint64_t most,
                                         int num_jobs);

}  // namespace ep::test
