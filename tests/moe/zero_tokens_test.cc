// SPDX-License-Identifier: Apache-2.0
// S04: ranks that send nothing, ranks that receive nothing, and nothing at all.
#include "tests/moe/sample_problems.h"
#include "tests/support/moe_ops.h"

#include <gtest/gtest.h>

namespace ep::test {
namespace {

constexpr int kNumRanks = 4;

/// Everything that can be done with one routing, cached dispatch included.
void use_fully(RankContext& context, Group& group, const Oracle& oracle) {
  const auto output = checked_dispatch(context, group, oracle);
  if (!output) return;
  const bool weighted = oracle.problem().layout == Layout::kExpertMajor;
  const CombineSpec plain{};
  checked_combine(context, group, oracle, output->handle, {.weighted = weighted, .has_bias = true});
  checked_combine(context, group, oracle, output->handle, {.place = RowsPlace::kOutside});
  checked_dispatch_backward(context, group, oracle, output->handle, plain);
  checked_combine_backward(context, group, oracle, output->handle, {.weighted = weighted});
  checked_dispatch_cached(context, group, oracle, output->handle);
}

TEST(ZeroTokens, EachRankInTurnMaySendNothing) {
  std::vector<Problem> problems;
  for (int rank = 0; rank < kNumRanks; ++rank) {
    Random random(static_cast<std::uint64_t>(rank));
    RoutingShape shape{.num_ranks = kNumRanks, .num_tokens = {20, 20, 20, 20}, .topk = 3};
    shape.num_tokens[static_cast<std::size_t>(rank)] = 0;
    shape.expert_to_rank = balanced_map(8, kNumRanks);
    const Routing routing = random_routing(shape, random);
    for (const Problem& problem : in_both_layouts(routing, static_cast<std::uint32_t>(rank + 1))) {
      problems.push_back(problem);
    }
  }
  check_problems(problems, use_fully);
}

TEST(ZeroTokens, EachRankInTurnMayReceiveNothing) {
  std::vector<Problem> problems;
  for (int rank = 0; rank < kNumRanks; ++rank) {
    Routing routing = uniform_routing(kNumRanks, 20, 3, 8, 3);
    avoid_rank(routing, rank);
    for (const Problem& problem : in_both_layouts(routing, static_cast<std::uint32_t>(rank + 1))) {
      problems.push_back(problem);
    }
  }
  check_problems(problems, use_fully);
}

TEST(ZeroTokens, NobodyMaySendAnything) {
  check_problems(in_both_layouts(uniform_routing(kNumRanks, 0, 3, 8, 3), 1), use_fully);
}

TEST(ZeroTokens, EveryChoiceMayBeMasked) {
  Routing routing = uniform_routing(kNumRanks, 20, 3, 8, 3);
  for (int rank = 0; rank < kNumRanks; ++rank) mask_all(routing, rank);
  check_problems(in_both_layouts(routing, 1), use_fully);
}

TEST(ZeroTokens, EmptyTensorsMayHaveNullPointers) {
  const Problem problem{.routing = uniform_routing(2, 0, 3, 8, 3)};
  check_problem(problem, [oracle = Oracle(problem)](RankContext& context, Group& group) {
    DispatchInput input;
    input.x = ConstTensorView(nullptr, DType::kBf16, {0, 64});
    input.topk_idx = ConstTensorView(nullptr, DType::kInt64, {0, 3});
    input.topk_weights = ConstTensorView(nullptr, DType::kFp32, {0, 3});
    const auto output = dispatch(group, input);
    if (!context.expect_ok(output.status(), "dispatch")) return;
    context.expect_nothing(check_dispatch(oracle, context.rank(), *output), "dispatch");
    CombineInput rows;
    rows.rows = ConstTensorView(nullptr, DType::kBf16, {0, 64});
    CombineOptions options;
    options.out = TensorView(nullptr, DType::kBf16, {0, 64});
    context.expect_ok(combine(group, output->handle, rows, options).status(), "combine");
  });
}

TEST(ZeroTokens, ARankWithoutRowsMayCombineAnotherTypeThanItReceived) {
  Routing routing = uniform_routing(2, 20, 2, 8, 3);
  avoid_rank(routing, 1);
  Problem problem{.routing = routing};
  set_row_format(problem, DType::kFp8E4M3, 64);
  problem.num_scales = 4;
  check_problem(problem, [oracle = Oracle(problem)](RankContext& context, Group& group) {
    const auto output = checked_dispatch(context, group, oracle);
    if (output) checked_combine(context, group, oracle, output->handle, {.hidden = 32});
  });
}

}  // namespace
}  // namespace ep::test
