// SPDX-License-Identifier: Apache-2.0
// Problems that several tests start from.
#pragma once

#include "tests/support/problem.h"
#include "tests/support/routing_cases.h"

#include <ep/moe.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace ep::test {

inline constexpr Layout kLayouts[] = {Layout::kFlat, Layout::kExpertMajor};
inline constexpr DType kReducible[] = {DType::kBf16, DType::kFp16, DType::kFp32};

/// Ragged tokens with masks and repeats, experts that do not divide; weights, no scales.
inline Problem sample_problem(Layout layout, int num_ranks = 3, std::uint64_t seed = 1) {
  Random random(seed);
  RoutingShape shape{.num_ranks = num_ranks, .topk = 4};
  for (int rank = 0; rank < num_ranks; ++rank) shape.num_tokens.push_back(uniform(random, 1, 60));
  shape.expert_to_rank = balanced_map(2 * num_ranks + 1, num_ranks);
  shape.masked_percent = 10;
  shape.repeated_percent = 20;
  Problem problem{.routing = random_routing(shape, random)};
  problem.layout = layout;
  problem.call = static_cast<std::uint32_t>(seed);
  return problem;
}

/// `bytes` per row whatever the dtype.
inline void set_row_format(Problem& problem, DType dtype, std::int64_t bytes) {
  problem.dtype = dtype;
  problem.hidden = bytes / size_of(dtype);
}

/// Twice: once in each layout.
inline std::vector<Problem> in_both_layouts(const Routing& routing, std::uint32_t call) {
  std::vector<Problem> problems;
  for (const Layout layout : kLayouts) {
    problems.push_back({.routing = routing, .layout = layout, .call = call});
  }
  return problems;
}

}  // namespace ep::test
