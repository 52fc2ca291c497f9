// SPDX-License-Identifier: Apache-2.0
// S08: one group serves calls of any shape and type, in any order.
#include "tests/moe/sample_problems.h"
#include "tests/support/moe_ops.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <array>

namespace ep::test {
namespace {

constexpr int kNumRanks = 3;

Problem any_problem(Random& random, std::uint32_t call) {
  constexpr std::array kDtypes{DType::kBf16, DType::kFp16, DType::kFp32, DType::kFp8E4M3,
                               DType::kInt8};
  RoutingShape shape{.num_ranks = kNumRanks, .topk = static_cast<int>(uniform(random, 1, 8))};
  const std::int64_t max_tokens = chance(random, 50) ? 244 : 8;
  for (int rank = 0; rank < kNumRanks; ++rank)
    shape.num_tokens.push_back(uniform(random, 0, max_tokens));
  shape.expert_to_rank = random_map(static_cast<int>(uniform(random, 1, 64)), kNumRanks, random);
  shape.masked_percent = 10;
  shape.repeated_percent = 10;
  Problem problem{.routing = random_routing(shape, random)};
  const DType dtype = kDtypes[static_cast<std::size_t>(uniform(random, 0, kDtypes.size() - 1))];
  set_row_format(problem, dtype, 16 * uniform(random, 1, 64));
  problem.layout = chance(random, 50) ? Layout::kFlat : Layout::kExpertMajor;
  problem.alignment =
      problem.layout == Layout::kFlat ? 1 : static_cast<int>(uniform(random, 1, 16));
  problem.num_scales = chance(random, 30) ? uniform(random, 1, 4) : 0;
  problem.idx_dtype = chance(random, 50) ? DType::kInt32 : DType::kInt64;
  problem.has_weights = chance(random, 70);
  problem.call = call;
  return problem;
}

std::vector<Problem> any_problems(int count) {
  Random random(17);
  std::vector<Problem> problems;
  for (int call = 1; call <= count; ++call)
    problems.push_back(any_problem(random, static_cast<std::uint32_t>(call)));
  return problems;
}

TEST(ShapeSwitch, OneGroupServesAnyOrderOfShapesAndTypes) {
  const RanksOptions options{.limit = std::chrono::seconds(300 * kSanitizerSlowdown)};
  check_problems(
      any_problems(scaled_rounds(200, 2000)),
      [](RankContext& context, Group& group, const Oracle& oracle) {
        poison_pool(context, group, 1 << 20);
        const auto output = checked_dispatch(context, group, oracle);
        if (!output) return;
        CombineSpec spec{.hidden = std::int64_t{8} * (1 + oracle.problem().call % 60)};
        spec.way = oracle.problem().call % 2 == 0 ? CombineWay::kPush : CombineWay::kPull;
        spec.place = oracle.problem().call % 3 == 0 ? RowsPlace::kOutside : RowsPlace::kArena;
        checked_combine(context, group, oracle, output->handle, spec);
      },
      options);
}

}  // namespace
}  // namespace ep::test
