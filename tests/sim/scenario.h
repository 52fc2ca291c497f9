// SPDX-License-Identifier: Apache-2.0
// What the ranks of a simulated run do: drawn from a seed, compared with the oracle.
#pragma once

#include "fabric/sim/site.h"
#include "tests/sim/engine.h"
#include "tests/support/moe_ops.h"

#include <cstdint>
#include <string>
#include <vector>

namespace ep::test {

/// A call, or calls, of all ranks.
struct SimStep {
  enum class Kind : std::uint8_t {
    kDispatch,
    kCached,
    kCombine,
    kCombineBackward,
    kDispatchBackward
  };
  Kind kind = Kind::kDispatch;
  DispatchSpec dispatch{};
  CombineSpec combine{};
};

/// What befalls a rank.
struct SimFault {
  enum class Kind : std::uint8_t { kNone, kAbsent, kKilled };
  Kind kind = Kind::kNone;
  int rank = 0;
  std::uint64_t at_step = 0;  ///< kKilled: of the scheduler
};

struct SimScenario {
  std::uint64_t seed = 0;
  Problem problem{};
  GroupConfig config{};
  SimLaunch launch{};
  std::vector<SimStep> steps{};
  /// Not kNone: instead of the steps, rounds of dispatch and combine until every other rank has an
  /// error that blames this one.
  SimFault fault{};

  std::string describe() const;
};

/// Everything about it follows from the seed.
SimScenario draw_scenario(std::uint64_t seed);

/// Every operation, in both layouts by the seed's parity, on so many ranks.
SimScenario large_scenario(int num_ranks, std::uint64_t seed);

struct SimResult {
  std::vector<std::string> findings{};  ///< violations, wrong results, errors
  std::uint64_t num_steps = 0;
};

/// `trace_path` empty: no trace.
SimResult run_scenario(const SimScenario& scenario,
                       fabric::sim::Sites& sites,
                       const std::string& trace_path = "");

}  // namespace ep::test
