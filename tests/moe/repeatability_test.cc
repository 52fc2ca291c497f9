// SPDX-License-Identifier: Apache-2.0
// S20: the bits of a token depend on nothing but the token: not on others, nor on budgets, ways,
// launchers or places.
#include "tests/moe/sample_problems.h"
#include "tests/support/moe_ops.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <optional>

namespace ep::test {
namespace {

constexpr int kNumRanks = 3;

struct Variant {
  DispatchSpec dispatch{};
  CombineSpec combine{.weighted = true, .has_bias = true};
  RanksOptions ranks{.num_ranks = kNumRanks};
  int ring_slots = 4;
  std::optional<int> num_sms{};
};

/// Received rows (without padding poison: exact sizes) and combined rows of all ranks.
std::vector<std::vector<std::byte>> bytes_of_run(const Oracle& oracle, const Variant& variant) {
  GroupConfig config = config_for(oracle.problem());
  config.ring_slots = variant.ring_slots;
  config.num_sms = variant.num_sms;
  const auto reports = check_group(variant.ranks, config, [&](RankContext& context, Group& group) {
    const auto output = checked_dispatch(context, group, oracle, variant.dispatch);
    if (!output) return;
    const auto received = bytes_of(output->x.view());
    context.bytes.assign(received.begin(), received.end());
    const auto rows = checked_combine(context, group, oracle, output->handle, variant.combine);
    if (rows) context.bytes.insert(context.bytes.end(), rows->begin(), rows->end());
  });
  std::vector<std::vector<std::byte>> bytes;
  for (const RankReport& report : reports) bytes.push_back(report.bytes);
  return bytes;
}

class Repeatability : public ::testing::Test {
 protected:
  void expect_same(const Variant& variant) { EXPECT_EQ(bytes_of_run(oracle_, variant), expected_); }

  const Oracle oracle_{sample_problem(Layout::kExpertMajor, kNumRanks, 12)};
  const std::vector<std::vector<std::byte>> expected_ = bytes_of_run(oracle_, {});
};

TEST_F(Repeatability, EverySmBudgetGivesTheSameBits) {
  for (int num_sms = 1; num_sms <= 4; ++num_sms) {
    expect_same({.num_sms = num_sms});
    Variant per_call;
    per_call.dispatch.num_sms = num_sms;
    per_call.combine.num_sms = num_sms;
    expect_same(per_call);
  }
}

TEST_F(Repeatability, ThreadsAndForksGiveTheSameBits) {
  expect_same({.ranks = {.num_ranks = kNumRanks, .launch = Launch::kForks}});
}

TEST_F(Repeatability, EveryWayGivesTheSameBits) {
  for (const CopyWay copy_way : {CopyWay::kSender, CopyWay::kReceiver}) {
    for (const CombineWay way : {CombineWay::kPull, CombineWay::kPush}) {
      Variant variant;
      variant.dispatch.copy_way = copy_way;
      variant.combine.way = way;
      expect_same(variant);
    }
  }
}

TEST_F(Repeatability, RowsInsideAndOutsideTheArenaGiveTheSameBits) {
  for (const RowsPlace place : {RowsPlace::kArena, RowsPlace::kOutside, RowsPlace::kStrided}) {
    for (const CombineWay way : {CombineWay::kPull, CombineWay::kPush}) {
      Variant variant;
      variant.combine.place = place;
      variant.combine.way = way;
      expect_same(variant);
    }
  }
}

TEST_F(Repeatability, OneRingSlotAndOneSmAreEnough) {
  for (const CombineWay way : {CombineWay::kPull, CombineWay::kPush}) {
    Variant variant{.ring_slots = 1, .num_sms = 1};
    variant.combine.way = way;
    variant.combine.place = RowsPlace::kOutside;
    expect_same(variant);
  }
}

TEST_F(Repeatability, TheSameCallGivesTheSameBitsEveryTime) {
  const int num_rounds = scaled_rounds(100, 1000);
  check_problem(oracle_.problem(), [&](RankContext& context, Group& group) {
    std::optional<std::vector<std::byte>> first;
    for (int round = 0; round < num_rounds; ++round) {
      context.step("round", round);
      const auto output = checked_dispatch(context, group, oracle_);
      if (!output) return;
      const auto rows =
          checked_combine(context, group, oracle_, output->handle, {.weighted = true});
      if (!rows || !context.expect(!first || *first == *rows, "other bits than in round 0")) return;
      first = rows;
    }
  });
}

/// Rank 0's rows are those of `fixed`, all others random.
Problem with_fixed_first_rank(const Problem& fixed, std::uint64_t seed) {
  Problem problem = sample_problem(fixed.layout, kNumRanks, seed);
  problem.routing.ranks[0] = fixed.routing.ranks[0];
  problem.call = fixed.call;
  return problem;
}

class BatchInvariance : public ::testing::TestWithParam<Layout> {};

INSTANTIATE_TEST_SUITE_P(Layouts,
                         BatchInvariance,
                         ::testing::ValuesIn(kLayouts),
                         [](const auto& layout) {
                           return layout.param == Layout::kFlat ? "flat" : "expert_major";
                         });

TEST_P(BatchInvariance, ATokensSumDoesNotDependOnOtherRanksTokens) {
  const Problem fixed = sample_problem(GetParam(), kNumRanks, 21);
  std::vector<Problem> problems;
  const int num_rounds = scaled_rounds(50, 500);
  for (int round = 0; round < num_rounds; ++round) {
    problems.push_back(with_fixed_first_rank(fixed, static_cast<std::uint64_t>(100 + round)));
  }
  std::optional<std::vector<std::byte>> first;
  check_problems(problems, [&](RankContext& context, Group& group, const Oracle& oracle) {
    const auto output = checked_dispatch(context, group, oracle);
    if (!output) return;
    const bool weighted = GetParam() == Layout::kExpertMajor;
    const auto rows =
        checked_combine(context, group, oracle, output->handle, {.weighted = weighted});
    if (context.rank() != 0 || !rows) return;
    context.expect(!first || *first == *rows, "rank 0 got other bits with other neighbours");
    first = rows;
  });
}

}  // namespace
}  // namespace ep::test
