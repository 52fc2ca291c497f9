// SPDX-License-Identifier: Apache-2.0
// The soak subcommand: dispatch and combine over and over without a barrier, one rank late.
#pragma once

#include "bench/job.h"
#include "bench/rank_scope.h"
#include "bench/summary.h"

#include <ep/status.h>

#include <iosfwd>

namespace ep::bench {

/// Rounds unless --iters says otherwise.
inline constexpr int kSoakRounds = 20'000;
/// Tokens per rank unless --tokens says otherwise.
inline constexpr std::int64_t kSoakTokens = 128;

/// Collective. Values are exact, every row of every round is checked where it lies, or on the host
/// where the device cannot. Errors as RankBench; wrong rows are counted.
Result<OpSummary> run_soak(const Job& job, RankScope& scope);

void print_soak(const Job& job, const OpSummary& soak, std::ostream& out);

}  // namespace ep::bench
