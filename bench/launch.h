// SPDX-License-Identifier: Apache-2.0
// Starts the ranks of a run, or joins the launcher that started this process as one of them.
#pragma once

#include "bench/options.h"
#include "bench/rank_scope.h"

namespace ep::bench {

/// True if a launcher's variables are set and the command line does not ask for ranks of its own.
bool joins_launcher(const Options& options);

/// Runs `rank_main` on every rank, or on this one if joins_launcher(). Returns the worst exit code.
ExitCode launch_ranks(const Options& options, const RankMain& rank_main);

}  // namespace ep::bench
