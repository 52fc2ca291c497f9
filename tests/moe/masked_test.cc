// SPDX-License-Identifier: Apache-2.0
// S10: masked choices and repeated experts.
#include "tests/moe/sample_problems.h"
#include "tests/support/moe_ops.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace ep::test {
namespace {

constexpr int kNumRanks = 3;

struct Percentages {
  int masked;
  int repeated;
};

void step_in_both_layouts(const std::vector<Routing>& routings) {
  std::vector<Problem> problems;
  for (const Routing& routing : routings) {
    const auto call = static_cast<std::uint32_t>(problems.size() + 1);
    for (const Problem& problem : in_both_layouts(routing, call)) problems.push_back(problem);
  }
  check_problems(problems, [](RankContext& context, Group& group, const Oracle& oracle) {
    const bool weighted = oracle.problem().layout == Layout::kExpertMajor;
    for (const CopyWay way : {CopyWay::kSender, CopyWay::kReceiver}) {
      checked_step(context, group, oracle, {.copy_way = way}, {.weighted = weighted});
    }
  });
}

Routing routing_with(Percentages percentages, std::int64_t num_tokens) {
  Random random(static_cast<std::uint64_t>(percentages.masked * 1000 + percentages.repeated));
  RoutingShape shape{
      .num_ranks = kNumRanks, .num_tokens = {num_tokens, num_tokens, num_tokens}, .topk = 4};
  shape.expert_to_rank = balanced_map(96, kNumRanks);
  shape.masked_percent = percentages.masked;
  shape.repeated_percent = percentages.repeated;
  return random_routing(shape, random);
}

TEST(MaskedChoices, MayBeAnyShareOfTheRouting) {
  std::vector<Routing> routings;
  for (const int masked : {1, 50, 95, 100}) {
    for (const std::int64_t num_tokens : {1, 300})
      routings.push_back(routing_with({masked, 0}, num_tokens));
  }
  step_in_both_layouts(routings);
}

TEST(MaskedChoices, MayBeAWholeRank) {
  std::vector<Routing> routings;
  for (int rank = 0; rank < kNumRanks; ++rank) {
    routings.push_back(routing_with({0, 0}, 40));
    mask_all(routings.back(), rank);
  }
  step_in_both_layouts(routings);
}

TEST(MaskedChoices, ATokenWithoutExpertsCombinesToZero) {
  Routing routing = routing_with({0, 0}, 5);
  mask_all(routing, 0);
  const Problem problem{.routing = routing, .layout = Layout::kExpertMajor};
  check_problem(problem, [oracle = Oracle(problem)](RankContext& context, Group& group) {
    const auto output = checked_dispatch(context, group, oracle);
    if (!output) return;
    poison_pool(context, group, 1 << 16);
    const auto rows = checked_combine(context, group, oracle, output->handle, {});
    if (!rows || context.rank() != 0) return;
    const bool is_zero = std::all_of(rows->begin(), rows->end(),
                                     [](std::byte value) { return value == std::byte{0}; });
    context.expect(is_zero, "a token without experts is not +0");
  });
}

TEST(RepeatedChoices, ShareOneRowInPairs) {
  std::vector<Routing> routings;
  for (const std::int64_t num_tokens : {1, 300}) {
    routings.push_back(routing_with({0, 100}, num_tokens));
    for (RankTokens& rank : routings.back().ranks) {
      for (std::size_t at = 0; at + 1 < rank.topk_idx.size(); at += 2)
        rank.topk_idx[at + 1] = rank.topk_idx[at];
    }
  }
  step_in_both_layouts(routings);
}

TEST(RepeatedChoices, ShareOneRowWhenAllAreEqual) {
  std::vector<Routing> routings;
  for (const std::int64_t num_tokens : {1, 300}) {
    routings.push_back(routing_with({0, 0}, num_tokens));
    for (RankTokens& rank : routings.back().ranks) {
      for (std::size_t at = 0; at < rank.topk_idx.size(); ++at)
        rank.topk_idx[at] = rank.topk_idx[at - at % 4];
    }
  }
  step_in_both_layouts(routings);
}

TEST(RepeatedChoices, MixWithMaskedOnes) {
  step_in_both_layouts({routing_with({30, 100}, 1), routing_with({30, 100}, 300)});
}

}  // namespace
}  // namespace ep::test
