// SPDX-License-Identifier: Apache-2.0
// Tests of groups: plans, memory in a steady state, allocation, and configurations that are wrong
// or differ.
#include "tests/moe/sample_problems.h"
#include "tests/support/moe_ops.h"

#include <ep/sm_budget.h>

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace ep::test {
namespace {

constexpr int kNumRanks = 3;

GroupConfig small_config() {
  GroupConfig config;
  config.max_tokens = 100;
  config.max_hidden_bytes = 1024;
  config.max_experts = 16;
  return config;
}

/// A pool that grows needs all peers.
void stay_until_all_are_done(RankContext& context) {
  context.expect_ok(context.bootstrap().barrier(std::chrono::seconds(20)), "barrier");
}

TEST(Group, PlanIsExactlyWhatIsAllocated) {
  for (const int num_ranks : {1, 2, 5}) {
    for (const std::int64_t pool_bytes : {std::int64_t{0}, std::int64_t{5'000'000}}) {
      GroupConfig config = small_config();
      config.pool_bytes = pool_bytes;
      const auto plan = Group::plan(config, num_ranks);
      ASSERT_TRUE(plan.ok()) << plan.status().to_string();
      EXPECT_GE(plan->pool_bytes, pool_bytes);
      EXPECT_GE(plan->total_bytes, plan->control_bytes + plan->ring_bytes + plan->pool_bytes);
      check_group({.num_ranks = num_ranks}, config, [&](RankContext& context, Group& group) {
        context.expect(group.arena_bytes() == plan->total_bytes,
                       "arena of " + std::to_string(group.arena_bytes()) + " bytes, planned " +
                           std::to_string(plan->total_bytes));
      });
    }
  }
}

TEST(Group, PlanIsExactAlsoForSeveralNodes) {
  for (const int lsa_size : {1, 2}) {
    for (const int num_slots : {1, 8}) {
      GroupConfig config = small_config();
      config.lsa_size = lsa_size;
      config.net.num_slots = num_slots;
      config.pool_bytes = 1'000'000;
      const auto plan = Group::plan(config, kNumRanks);
      ASSERT_TRUE(plan.ok()) << plan.status().to_string();
      EXPECT_GT(plan->net_bytes, 0);
      EXPECT_GE(plan->total_bytes,
                plan->control_bytes + plan->ring_bytes + plan->net_bytes + plan->pool_bytes);
      check_group({.num_ranks = kNumRanks}, config, [&](RankContext& context, Group& group) {
        context.expect(group.arena_bytes() == plan->total_bytes,
                       "arena of " + std::to_string(group.arena_bytes()) + " bytes, planned " +
                           std::to_string(plan->total_bytes));
      });
    }
  }
}

TEST(Group, ASteadyStateAllocatesNoMemory) {
  for (const Layout layout : kLayouts) {
    const Problem problem = sample_problem(layout, kNumRanks, 2);
    check_problem(problem, [oracle = Oracle(problem)](RankContext& context, Group& group) {
      for (int round = 0; round < 3; ++round) checked_step(context, group, oracle, {}, {});
      const int num_segments = group.num_segments();
      const std::int64_t arena_bytes = group.arena_bytes();
      for (int round = 0; round < 20; ++round) checked_step(context, group, oracle, {}, {});
      context.expect(group.num_segments() == num_segments, "segments were added");
      context.expect(group.arena_bytes() == arena_bytes, "the arena grew");
    });
  }
}

TEST(Group, KnowsItsRankSizeAndConfiguration) {
  GroupConfig config = small_config();
  config.num_sms = 2;
  check_group({.num_ranks = kNumRanks}, config, [](RankContext& context, Group& group) {
    context.expect(group.rank() == context.rank(), "wrong rank");
    context.expect(group.num_ranks() == kNumRanks, "wrong size");
    context.expect(group.config().max_tokens == 100 && group.config().num_sms == 2,
                   "another configuration");
    context.expect_ok(group.status(), "status of a new group");
  });
}

TEST(Group, AllocatesTensorsThatDoNotOverlap) {
  check_group({.num_ranks = kNumRanks}, small_config(), [](RankContext& context, Group& group) {
    std::vector<Tensor> tensors;
    for (const std::int64_t rows : {0, 1, 7, 1000, 3}) {
      auto tensor = group.allocate(DType::kBf16, {rows, 24});
      if (!context.expect_ok(tensor.status(), "allocate")) return;
      const auto bytes = bytes_of(tensor->view());
      std::fill(bytes.begin(), bytes.end(), static_cast<std::byte>(tensors.size()));
      tensors.push_back(*tensor);
    }
    for (std::size_t at = 0; at < tensors.size(); ++at) {
      for (const std::byte value : bytes_of(tensors[at].view())) {
        if (!context.expect(value == static_cast<std::byte>(at), "two tensors overlap")) return;
      }
    }
    stay_until_all_are_done(context);
  });
}

TEST(Group, ReservedBytesServeAnAllocationWithoutGrowing) {
  check_group({.num_ranks = kNumRanks}, small_config(), [](RankContext& context, Group& group) {
    constexpr std::int64_t kBytes = 300 << 20;
    if (!context.expect_ok(group.reserve(kBytes), "reserve")) return;
    const int num_segments = group.num_segments();
    context.expect_ok(group.allocate(DType::kUInt8, {kBytes}).status(), "allocate");
    context.expect(group.num_segments() == num_segments, "the pool grew again");
    stay_until_all_are_done(context);
  });
}

TEST(Group, RefusesNegativeShapes) {
  check_group({.num_ranks = 1}, small_config(), [](RankContext& context, Group& group) {
    const Status status = group.allocate(DType::kBf16, {-3, 4}).status();
    context.expect(status.code() == Errc::kInvalidArgument, status.to_string());
    context.expect(status.message().find("-3") != std::string::npos, status.to_string());
    context.expect(group.reserve(-1).code() == Errc::kInvalidArgument, "reserve(-1)");
  });
}

struct BadConfig {
  const char* field;
  std::function<void(GroupConfig&)> spoil;
  std::string value;
};

/// Creates groups with the spoiled configuration on the ranks that `is_spoiled` says;
/// `mentions(rank)` must be in the message of that rank.
void expect_refused(const BadConfig& bad,
                    const std::function<bool(int rank)>& is_spoiled,
                    const std::function<std::vector<std::string>(int rank)>& mentions) {
  const auto reports = run_ranks({.num_ranks = kNumRanks}, [&](RankContext& context) {
    GroupConfig config = small_config();
    if (is_spoiled(context.rank())) bad.spoil(config);
    const Status status = Group::create(context.bootstrap(), config).status();
    context.expect(status.code() == Errc::kInvalidArgument, status.to_string());
    for (const std::string& mention : mentions(context.rank())) {
      context.expect(status.message().find(mention) != std::string::npos,
                     "no '" + mention + "' in: " + status.to_string());
    }
  });
  SCOPED_TRACE(bad.field);
  expect_fine(reports);
}

void expect_refused_everywhere(const BadConfig& bad, const std::vector<std::string>& mentions) {
  expect_refused(
      bad, [](int) { return true; }, [&](int) { return mentions; });
}

void expect_difference_refused(const BadConfig& bad, const std::vector<std::string>& mentions) {
  expect_refused(
      bad, [](int rank) { return rank == 2; }, [&](int) { return mentions; });
}

TEST(GroupConfig, ValuesOutOfRangeAreNamedWithTheirValue) {
  const std::vector<BadConfig> bad_configs{
      {"max_tokens", [](GroupConfig& config) { config.max_tokens = -5; }, "-5"},
      {"max_hidden_bytes", [](GroupConfig& config) { config.max_hidden_bytes = 1000; }, "1000"},
      {"max_hidden_bytes", [](GroupConfig& config) { config.max_hidden_bytes = 0; }, "0"},
      {"max_topk", [](GroupConfig& config) { config.max_topk = 33; }, "33"},
      {"max_topk", [](GroupConfig& config) { config.max_topk = 0; }, "0"},
      {"max_experts", [](GroupConfig& config) { config.max_experts = 0; }, "0"},
      {"ring_slots", [](GroupConfig& config) { config.ring_slots = 0; }, "0"},
      {"ring_slots", [](GroupConfig& config) { config.ring_slots = 65; }, "65"},
      {"pool_bytes", [](GroupConfig& config) { config.pool_bytes = -1; }, "-1"},
      {"num_sms", [](GroupConfig& config) { config.num_sms = 0; }, "0"},
      {"num_sms", [](GroupConfig& config) { config.num_sms = SmBudget::kMaxSms + 1; }, "1025"},
      {"timeout", [](GroupConfig& config) { config.timeout = std::chrono::milliseconds(-7); },
       "-7"},
      {"first_epoch", [](GroupConfig& config) { config.first_epoch = 0; }, "0"},
  };
  for (const BadConfig& bad : bad_configs) {
    expect_refused_everywhere(bad, {bad.field, bad.value});
    // Alone with its bad value: it names the value, the others name the rank.
    expect_refused(
        bad, [](int rank) { return rank == 1; },
        [&](int rank) {
          return rank == 1 ? std::vector<std::string>{bad.field, bad.value}
                           : std::vector<std::string>{"rank 1"};
        });
  }
}

TEST(GroupConfig, AMapForAnotherNumberOfRanksIsRefused) {
  const BadConfig bad{
      "experts",
      [](GroupConfig& config) { config.experts = ExpertMap::balanced(16, kNumRanks + 1).value(); },
      "4"};
  expect_refused_everywhere(bad, {bad.field, bad.value});
}

TEST(GroupConfig, DifferencesNameTheFieldTheRanksAndBothValuesEverywhere) {
  const std::vector<std::pair<BadConfig, std::string>> differences{
      {{"max_tokens", [](GroupConfig& config) { config.max_tokens = 101; }, "101"}, "100"},
      {{"max_hidden_bytes", [](GroupConfig& config) { config.max_hidden_bytes = 2048; }, "2048"},
       "1024"},
      {{"max_topk", [](GroupConfig& config) { config.max_topk = 9; }, "9"}, "8"},
      {{"max_experts", [](GroupConfig& config) { config.max_experts = 17; }, "17"}, "16"},
      {{"ring_slots", [](GroupConfig& config) { config.ring_slots = 5; }, "5"}, "4"},
      {{"timeout", [](GroupConfig& config) { config.timeout = std::chrono::milliseconds(4321); },
        "4321"},
       "10000"},
      {{"first_epoch", [](GroupConfig& config) { config.first_epoch = 77; }, "77"}, "1"},
  };
  for (const auto& [bad, other_value] : differences) {
    expect_difference_refused(bad, {bad.field, bad.value, other_value, "rank 0", "rank 2"});
  }
}

TEST(GroupConfig, DifferentDefaultMapsAreRefused) {
  const BadConfig bad{"experts",
                      [](GroupConfig& config) {
                        config.experts =
                            ExpertMap::create(std::vector<int>(16, 1), kNumRanks).value();
                      },
                      ""};
  expect_difference_refused(bad, {bad.field, "rank 0", "rank 2"});
}

TEST(GroupConfig, BudgetsAndPoolsMayDiffer) {
  check_ranks({.num_ranks = kNumRanks}, [](RankContext& context) {
    GroupConfig config = small_config();
    config.num_sms = 1 + context.rank();
    config.pool_bytes = context.rank() * 1'000'000;
    context.expect_ok(Group::create(context.bootstrap(), config).status(), "create");
  });
}

TEST(GroupConfig, BackendsThatDoNotExistAreUnsupported) {
  if (Device::count() > 0) GTEST_SKIP() << "CUDA is here";
  check_ranks({.num_ranks = 2}, [](RankContext& context) {
    GroupConfig config = small_config();
    config.backend = Backend::kCuda;
    const Status status = Group::create(context.bootstrap(), config).status();
    context.expect(status.code() == Errc::kUnsupported, status.to_string());
  });
}

}  // namespace
}  // namespace ep::test
