// SPDX-License-Identifier: Apache-2.0
// Random problems inside a RapidCheck property; each number is drawn by itself, so that failures
// shrink.
#pragma once

#include "tests/support/problem.h"

#include <cstdint>

namespace ep::test {

/// Largest values that are drawn.
struct ProblemLimits {
  int max_ranks = 5;
  std::int64_t max_tokens = 70;
  int max_topk = 9;
  int max_experts = 40;
  std::int64_t max_blocks = 12;  ///< of 16 bytes in a row
};

/// Any routing, layout, alignment, dtype, capacity and map within the limits. Inside a property
/// only.
Problem arbitrary_problem(const ProblemLimits& limits = {});

/// Its routing alone.
Routing arbitrary_routing(const ProblemLimits& limits = {});

}  // namespace ep::test
