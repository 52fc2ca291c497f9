// SPDX-License-Identifier: Apache-2.0
// What one rank of a run lives in, however it was started.
#pragma once

#include "bench/exit_code.h"
#include "bench/meeting.h"

#include <ep/bootstrap.h>
#include <ep/status.h>

#include <functional>
#include <string>

namespace ep::bench {

struct RankScope {
  int rank = 0;
  int num_ranks = 1;
  Bootstrap& bootstrap;
  Meeting& meeting;
};

/// The work of a rank; prints its own errors.
using RankMain = std::function<ExitCode(RankScope&)>;

/// rank_main; an exception (std::bad_alloc, or a bug) is reported and ends this rank only.
ExitCode run_guarded(RankScope& scope, const RankMain& rank_main);

/// Reports why there is no group of ranks. Wrong numbers in the environment, a port in use and a
/// peer that does not come are all kPeer.
ExitCode fail_to_meet(int rank, const Status& status);

/// Prints "ep-bench: rank 2: ..." to stderr in one piece.
void print_rank_error(int rank, const std::string& message);

}  // namespace ep::bench
