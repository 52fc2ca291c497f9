// SPDX-License-Identifier: Apache-2.0
// Tests of dispatch: what arrives, where, for every kind of row and routing.
#include "tests/moe/sample_problems.h"
#include "tests/support/moe_ops.h"
#include "tests/support/routing_cases.h"

#include <gtest/gtest.h>

#include <array>

namespace ep::test {
namespace {

void dispatch_only(RankContext& context, Group& group, const Oracle& oracle) {
  poison_pool(context, group, 1 << 16);
  checked_dispatch(context, group, oracle);
}

class Dispatch : public ::testing::TestWithParam<Layout> {};

INSTANTIATE_TEST_SUITE_P(Layouts, Dispatch, ::testing::ValuesIn(kLayouts), [](const auto& layout) {
  return layout.param == Layout::kFlat ? "flat" : "expert_major";
});

TEST_P(Dispatch, MovesRowsOfEveryDtypeBitwise) {
  std::vector<Problem> problems;
  for (const DType dtype : {DType::kBf16, DType::kFp16, DType::kFp32, DType::kFp8E4M3,
                            DType::kFp8E5M2, DType::kInt8, DType::kUInt8}) {
    problems.push_back(sample_problem(GetParam()));
    set_row_format(problems.back(), dtype, 208);
  }
  check_problems(problems, dispatch_only);
}

TEST_P(Dispatch, CarriesScalesOfAnyDtypeAndNumberWithTheRows) {
  std::vector<Problem> problems;
  for (const DType scale_dtype : {DType::kFp32, DType::kUInt8, DType::kBf16}) {
    for (const std::int64_t num_scales : {1, 7, 56}) {
      problems.push_back(sample_problem(GetParam()));
      set_row_format(problems.back(), DType::kFp8E4M3, 64);
      problems.back().scale_dtype = scale_dtype;
      problems.back().num_scales = num_scales;
    }
  }
  check_problems(problems, dispatch_only);
}

TEST_P(Dispatch, TakesInt32AndInt64IndicesWithAndWithoutWeights) {
  std::vector<Problem> problems;
  for (const DType idx_dtype : {DType::kInt32, DType::kInt64}) {
    for (const bool has_weights : {false, true}) {
      problems.push_back(sample_problem(GetParam()));
      problems.back().idx_dtype = idx_dtype;
      problems.back().has_weights = has_weights;
    }
  }
  check_problems(problems, dispatch_only);
}

TEST_P(Dispatch, RepeatedCallsNeedNoReset) {
  std::vector<Problem> problems;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    problems.push_back(sample_problem(GetParam(), 3, seed));
  }
  check_problems(problems, dispatch_only);
}

TEST_P(Dispatch, OneRankAloneKeepsItsOwnRows) {
  check_problems({sample_problem(GetParam(), 1, 3)}, dispatch_only);
}

TEST_P(Dispatch, EveryCopyWayGivesTheSameRows) {
  const Problem problem = sample_problem(GetParam(), 2, 5);
  check_problem(problem, [oracle = Oracle(problem)](RankContext& context, Group& group) {
    for (const CopyWay way : {CopyWay::kAuto, CopyWay::kSender, CopyWay::kReceiver}) {
      checked_dispatch(context, group, oracle, {.copy_way = way});
    }
  });
}

TEST_P(Dispatch, ForkedRanksReceiveTheSameAsThreads) {
  check_problems({sample_problem(GetParam(), 4, 7), sample_problem(GetParam(), 4, 8)},
                 dispatch_only, {.launch = Launch::kForks});
}

TEST(DispatchExpertMajor, PadsEveryGroupWithZeroRowsToTheAlignment) {
  std::vector<Problem> problems;
  for (const int alignment : {1, 2, 8, 24, 128}) {
    problems.push_back(sample_problem(Layout::kExpertMajor));
    problems.back().alignment = alignment;
    problems.back().num_scales = 3;
  }
  check_problems(problems, dispatch_only);
}

TEST(DispatchExpertMajor, ManyLocalExpertsOfOneTokenEachGetTheirCopy) {
  // Two ranks own 40 experts, so that a token has up to 16 rows on a rank.
  const Routing routing = uniform_routing(2, 50, 32, 40, 9);
  check_problem({.routing = routing, .layout = Layout::kExpertMajor},
                [oracle = Oracle({.routing = routing, .layout = Layout::kExpertMajor})](
                    RankContext& context, Group& group) {
                  for (const CopyWay way : {CopyWay::kSender, CopyWay::kReceiver}) {
                    checked_dispatch(context, group, oracle, {.copy_way = way});
                  }
                });
}

class CornerRoutings : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Ranks, CornerRoutings, ::testing::Values(1, 2, 3, 5));

TEST_P(CornerRoutings, GoThroughAllOperationsInBothLayouts) {
  std::vector<Problem> problems;
  for (const NamedRouting& entry : corner_routings(GetParam())) {
    const auto call = static_cast<std::uint32_t>(problems.size() + 1);
    for (const Problem& problem : in_both_layouts(entry.routing, call)) problems.push_back(problem);
  }
  check_problems(problems, [](RankContext& context, Group& group, const Oracle& oracle) {
    const bool weighted = oracle.problem().layout == Layout::kExpertMajor;
    checked_step(context, group, oracle, {}, {.weighted = weighted});
  });
}

}  // namespace
}  // namespace ep::test
