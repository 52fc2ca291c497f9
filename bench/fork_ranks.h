// SPDX-License-Identifier: Apache-2.0
// Ranks as child processes.
#pragma once

#include "bench/options.h"
#include "bench/rank_scope.h"

namespace ep::bench {

/// Runs `rank_main` in `options.ranks` children. They die with this process, and none outlives the
/// call: after the first failure the others have the options' timeout, then they are killed.
/// Returns the worst exit code, kPeer for a rank that was killed. The caller has no other thread.
ExitCode run_forked(const Options& options, const RankMain& rank_main);

}  // namespace ep::bench
