// SPDX-License-Identifier: Apache-2.0
// Starts the ranks of a run, or joins the launcher that started this process as one of them.
#pragma once

#include "bench/exit_code.h"
#include "bench/meeting.h"
#include "bench/options.h"

#include <ep/bootstrap.h>
#include <ep/status.h>

#include <functional>
#include <optional>

namespace ep::bench {

/// What one rank runs in.
struct RankScope {
  int rank = 0;
  int num_ranks = 1;
  Bootstrap& bootstrap;
  Meeting& meeting;
};

/// The work of a rank; prints its own errors.
using RankMain = std::function<ExitCode(RankScope&)>;

/// True if a launcher's variables are set and the command line does not ask for ranks of its own.
bool joins_launcher(const Options& options);

/// Runs `rank_main` on every rank, or on this one if joins_launcher(). Forked ranks die with this
/// process, and none outlives the call: after the first failure the others have the options'
/// timeout, then they are killed. Returns the worst exit code, kPeer for a rank that was killed.
ExitCode launch_ranks(const Options& options, const RankMain& rank_main);

/// Prints "ep-bench: rank 2: ..." to stderr in one piece.
void print_rank_error(int rank, const std::string& message);

}  // namespace ep::bench
