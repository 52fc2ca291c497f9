// SPDX-License-Identifier: Apache-2.0
// What ep_prove is asked for.
#pragma once

#include "fabric/sim/site.h"

#include <cstdint>
#include <string>

namespace ep::test {

struct ProveOptions {
  std::uint64_t first_seed = 1;
  std::uint64_t num_seeds = 300;
  std::uint64_t mutant_seeds = 0;  ///< per mutant at most; 0: no mutants
  int num_jobs = 2;
  bool is_replay = false;  ///< of first_seed alone
  bool has_large = false;  ///< 64 ranks as well
  fabric::sim::Mutation weakened{};
  std::string trace_path{};
  std::string report_path{};  ///< of the mutants, JSON
};

/// False, with the usage on stderr, for arguments that are none.
bool parse_prove_options(int argc, char** argv, ProveOptions& options);

}  // namespace ep::test
