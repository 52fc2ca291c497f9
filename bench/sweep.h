// SPDX-License-Identifier: Apache-2.0
// The sweep subcommand: one operation over budgets and numbers of tokens.
#pragma once

#include "bench/job.h"
#include "bench/rank_scope.h"
#include "bench/summary.h"

#include <ep/status.h>

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace ep::bench {

struct SweepPoint {
  std::int64_t tokens = 0;
  int sms = 0;
  Summary summary;  ///< of one operation
};

struct SweepResult {
  std::vector<SweepPoint> points;
  std::string json_lines;

  bool has_wrong_row() const;
};

/// Collective. The first budget of each number of tokens has every row of every step checked; each
/// later one the last results of every set. Errors as RankBench.
Result<SweepResult> run_sweep(const Job& job, RankScope& scope);

/// A table for people.
void print_sweep(const Job& job, const SweepResult& result, std::ostream& out);

}  // namespace ep::bench
