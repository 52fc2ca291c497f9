// SPDX-License-Identifier: Apache-2.0
// Ranks as processes of their own; for ranks.cc.
#pragma once

#include "tests/support/ranks.h"

#include <span>
#include <string>
#include <vector>

namespace ep::test {

/// Runs the body on one rank; exceptions become failures.
RankReport run_body(Bootstrap& bootstrap, RankStep& step, const RankBody& body);

/// "rank 0: dispatch 17\n..."
std::string describe_steps(std::span<const RankStep> steps);

std::vector<RankReport> run_as_forks(const RanksOptions& options, const RankBody& body);

}  // namespace ep::test
