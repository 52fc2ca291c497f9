// SPDX-License-Identifier: Apache-2.0
// S06: odd and different token counts on any number of ranks, growing over time.
#include "tests/moe/sample_problems.h"
#include "tests/support/moe_ops.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <iterator>

namespace ep::test {
namespace {

/// Round by round the ranks may draw larger counts.
Problem ragged_problem(int num_ranks, int round, int num_rounds, Random& random) {
  constexpr int kNumCounts = static_cast<int>(std::size(kRaggedTokens));
  const int largest = std::max(3, (round + 1) * kNumCounts / num_rounds);
  RoutingShape shape{.num_ranks = num_ranks, .topk = static_cast<int>(uniform(random, 1, 4))};
  for (int rank = 0; rank < num_ranks; ++rank) {
    shape.num_tokens.push_back(kRaggedTokens[uniform(random, 0, largest - 1)]);
  }
  shape.expert_to_rank =
      balanced_map(static_cast<int>(uniform(random, 1, 3 * num_ranks)), num_ranks);
  shape.masked_percent = 5;
  Problem problem{.routing = random_routing(shape, random)};
  problem.layout = chance(random, 50) ? Layout::kFlat : Layout::kExpertMajor;
  problem.alignment = problem.layout == Layout::kFlat ? 1 : 8;
  problem.hidden = 16;
  problem.call = static_cast<std::uint32_t>(round + 1);
  return problem;
}

class Ragged : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Ranks, Ragged, ::testing::Values(2, 3, 5, 6, 7, 8));

TEST_P(Ragged, TokenCountsMayDifferFromRankToRankAndCallToCall) {
  const int num_rounds = scaled_rounds(6, 100);
  Random random(static_cast<std::uint64_t>(GetParam()));
  std::vector<Problem> problems;
  for (int round = 0; round < num_rounds; ++round) {
    problems.push_back(ragged_problem(GetParam(), round, num_rounds, random));
  }
  const RanksOptions options{.limit = std::chrono::seconds(300 * kSanitizerSlowdown)};
  check_problems(
      problems,
      [](RankContext& context, Group& group, const Oracle& oracle) {
        const bool weighted = oracle.problem().layout == Layout::kExpertMajor;
        checked_step(context, group, oracle, {}, {.hidden = 16, .weighted = weighted});
      },
      options);
}

}  // namespace
}  // namespace ep::test
