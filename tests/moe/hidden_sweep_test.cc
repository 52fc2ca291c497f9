// SPDX-License-Identifier: Apache-2.0
// S09: rows of every size, with odd token counts and canaries behind every row and section.
#include "tests/moe/sample_problems.h"
#include "tests/support/moe_ops.h"

#include <gtest/gtest.h>

namespace ep::test {
namespace {

// Bytes of a row; 5,760 and 4,608 are 2,880 and 2,304 elements of bf16.
constexpr std::int64_t kRowBytes[] = {16,   32,   48,   64,   112,  272,  512,   1008,  1536,
                                      2048, 3088, 4096, 4608, 5760, 8208, 12288, 14336, 16384};

Problem sized_problem(Layout layout, DType dtype, std::int64_t row_bytes) {
  Random random(static_cast<std::uint64_t>(row_bytes));
  RoutingShape shape{.num_ranks = 2, .num_tokens = {33, 7}, .topk = 3};
  shape.expert_to_rank = balanced_map(5, 2);
  Problem problem{.routing = random_routing(shape, random), .layout = layout};
  set_row_format(problem, dtype, row_bytes);
  problem.num_scales = row_bytes % 3 == 0 ? 5 : 0;
  problem.num_scales = std::min(problem.num_scales, problem.hidden);
  const Oracle exact(problem);
  for (int rank = 0; rank < 2; ++rank)
    problem.capacity.emplace_back(exact.rank(rank).num_needed() + rank);
  return problem;
}

class HiddenSweep : public ::testing::TestWithParam<Layout> {};

INSTANTIATE_TEST_SUITE_P(Layouts,
                         HiddenSweep,
                         ::testing::ValuesIn(kLayouts),
                         [](const auto& layout) {
                           return layout.param == Layout::kFlat ? "flat" : "expert_major";
                         });

TEST_P(HiddenSweep, DispatchWritesNoByteOutsideItsRows) {
  std::vector<Problem> problems;
  for (const std::int64_t row_bytes : kRowBytes) {
    for (const DType dtype : {DType::kBf16, DType::kFp32, DType::kInt8}) {
      problems.push_back(sized_problem(GetParam(), dtype, row_bytes));
    }
  }
  check_problems(problems, [](RankContext& context, Group& group, const Oracle& oracle) {
    for (const CopyWay way : {CopyWay::kSender, CopyWay::kReceiver}) {
      checked_dispatch(context, group, oracle, {.copy_way = way, .gives_buffers = true});
    }
  });
}

TEST_P(HiddenSweep, CombineWritesNoByteOutsideItsRows) {
  std::vector<Problem> problems;
  for (const std::int64_t row_bytes : kRowBytes)
    problems.push_back(sized_problem(GetParam(), DType::kBf16, row_bytes));
  check_problems(problems, [](RankContext& context, Group& group, const Oracle& oracle) {
    const auto output = checked_dispatch(context, group, oracle);
    if (!output) return;
    CombineSpec spec{.hidden = oracle.problem().hidden, .out = OutPlace::kGuarded};
    spec.weighted = oracle.problem().layout == Layout::kExpertMajor;
    for (const CombineWay way : {CombineWay::kPull, CombineWay::kPush}) {
      for (const RowsPlace place : {RowsPlace::kArena, RowsPlace::kStrided}) {
        spec.way = way;
        spec.place = place;
        checked_combine(context, group, oracle, output->handle, spec);
      }
    }
    checked_combine_backward(context, group, oracle, output->handle, spec);
  });
}

}  // namespace
}  // namespace ep::test
