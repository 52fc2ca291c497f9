// SPDX-License-Identifier: Apache-2.0
// S02: a long run of combines at full token capacity whose sums are exact, so that one bad element
// shows.
#include "tests/moe/sample_problems.h"
#include "tests/support/moe_ops.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

namespace ep::test {
namespace {

constexpr int kNumRanks = 4;
constexpr std::int64_t kTokens = 256;
constexpr int kExperts = 32;

Routing full_routing(std::uint64_t seed) {
  return uniform_routing(kNumRanks, kTokens, 8, kExperts, seed);
}

/// Rows are 0 or 1 and weights are not used: every partial sum is a small integer.
void run_rounds(const std::vector<Problem>& problems, const RanksOptions& options, int num_rounds) {
  check_problems(
      problems,
      [num_rounds](RankContext& context, Group& group, const Oracle& oracle) {
        const CombineSpec spec{.values = {.kind = ValueKind::kBits}};
        for (int round = 0; round < num_rounds; ++round) {
          context.step("round", round);
          const auto output = checked_dispatch(context, group, oracle);
          if (!output || !checked_combine(context, group, oracle, output->handle, spec)) return;
        }
      },
      options);
}

class ExactSums : public ::testing::TestWithParam<Launch> {
 protected:
  RanksOptions options() const {
    return {.launch = GetParam(), .limit = std::chrono::seconds(300 * kSanitizerSlowdown)};
  }
};

INSTANTIATE_TEST_SUITE_P(Launches,
                         ExactSums,
                         ::testing::Values(Launch::kThreads, Launch::kForks),
                         [](const auto& launch) { return name_of(launch.param); });

TEST_P(ExactSums, StayExactAtFullCapacity) {
  run_rounds(in_both_layouts(full_routing(1), 1), options(), scaled_rounds(12, 2500));
}

TEST_P(ExactSums, StayExactWhenOnlyOneRankSends) {
  for (const int sender : {0, kNumRanks - 1}) {
    Routing routing = full_routing(2);
    for (RankTokens& rank : routing.ranks) {
      for (std::size_t at = 0; at < rank.topk_idx.size(); ++at)
        rank.topk_idx[at] = static_cast<std::int64_t>(at % 2);
    }
    for (int rank = 0; rank < kNumRanks; ++rank) {
      if (rank != sender) mask_all(routing, rank);
    }
    run_rounds(in_both_layouts(routing, 1), options(), scaled_rounds(12, 2500));
  }
}

TEST_P(ExactSums, StayExactWithTheSmallestRing) {
  GroupConfig config = config_for(in_both_layouts(full_routing(3), 1));
  config.ring_slots = 1;
  RanksOptions ranks = options();
  ranks.num_ranks = kNumRanks;
  const Oracle oracle({.routing = full_routing(3), .layout = Layout::kExpertMajor});
  check_group(ranks, config, [&](RankContext& context, Group& group) {
    const auto output = checked_dispatch(context, group, oracle);
    for (int round = 0; output && round < scaled_rounds(12, 2500); ++round) {
      context.step("round", round);
      CombineSpec spec{.values = {.kind = ValueKind::kBits}, .place = RowsPlace::kOutside};
      spec.way = round % 2 == 0 ? CombineWay::kPush : CombineWay::kPull;
      if (!checked_combine(context, group, oracle, output->handle, spec)) return;
    }
  });
}

}  // namespace
}  // namespace ep::test
