// SPDX-License-Identifier: Apache-2.0
// Tests of the backward directions: gradients of tokens, of experts' rows and of the router.
#include "tests/moe/sample_problems.h"
#include "tests/support/moe_ops.h"

#include <gtest/gtest.h>

namespace ep::test {
namespace {

TEST(DispatchBackward, ReturnsTokenAndRouterGradientsInBothLayouts) {
  std::vector<Problem> problems;
  for (const Layout layout : kLayouts) {
    problems.push_back(sample_problem(layout, 3, 1));
    problems.push_back(sample_problem(layout, 3, 2));
  }
  check_problems(problems, [](RankContext& context, Group& group, const Oracle& oracle) {
    const auto output = checked_dispatch(context, group, oracle);
    if (!output) return;
    for (const DType dtype : kReducible) {
      for (const CombineWay way : {CombineWay::kAuto, CombineWay::kPull, CombineWay::kPush}) {
        const CombineSpec spec{
            .values = {.dtype = dtype}, .hidden = 128 / size_of(dtype), .way = way};
        checked_dispatch_backward(context, group, oracle, output->handle, spec);
      }
    }
  });
}

TEST(DispatchBackward, WorksWithoutARouterGradient) {
  std::vector<Problem> problems;
  for (const Layout layout : kLayouts) {
    problems.push_back(sample_problem(layout));
    problems.back().has_weights = false;
  }
  check_problems(problems, [](RankContext& context, Group& group, const Oracle& oracle) {
    const auto output = checked_dispatch(context, group, oracle);
    if (output) checked_dispatch_backward(context, group, oracle, output->handle, {});
  });
}

TEST(DispatchBackward, StagesGradientsThatLieOutsideTheArena) {
  std::vector<Problem> problems{sample_problem(Layout::kFlat),
                                sample_problem(Layout::kExpertMajor)};
  check_problems(problems, [](RankContext& context, Group& group, const Oracle& oracle) {
    const auto output = checked_dispatch(context, group, oracle);
    if (!output) return;
    for (const RowsPlace place : {RowsPlace::kOutside, RowsPlace::kStrided}) {
      checked_dispatch_backward(context, group, oracle, output->handle, {.place = place});
    }
  });
}

TEST(CombineBackward, ReturnsRowGradientsWithZerosInPadding) {
  std::vector<Problem> problems;
  for (const int alignment : {1, 8, 128}) {
    problems.push_back(sample_problem(Layout::kExpertMajor));
    problems.back().alignment = alignment;
  }
  problems.push_back(sample_problem(Layout::kFlat));
  check_problems(problems, [](RankContext& context, Group& group, const Oracle& oracle) {
    const auto output = checked_dispatch(context, group, oracle);
    if (!output) return;
    for (const DType dtype : kReducible) {
      const CombineSpec spec{.values = {.dtype = dtype}, .hidden = 128 / size_of(dtype)};
      checked_combine_backward(context, group, oracle, output->handle, spec);
    }
  });
}

TEST(CombineBackward, OfAWeightedCombineAlsoReturnsTheRouterGradient) {
  std::vector<Problem> problems{sample_problem(Layout::kExpertMajor, 3, 1),
                                sample_problem(Layout::kExpertMajor, 3, 4)};
  problems.back().alignment = 8;
  check_problems(problems, [](RankContext& context, Group& group, const Oracle& oracle) {
    const auto output = checked_dispatch(context, group, oracle);
    if (!output) return;
    for (const DType dtype : kReducible) {
      for (const RowsPlace place : {RowsPlace::kArena, RowsPlace::kOutside, RowsPlace::kStrided}) {
        const CombineSpec spec{.values = {.dtype = dtype},
                               .hidden = 128 / size_of(dtype),
                               .weighted = true,
                               .place = place};
        checked_combine_backward(context, group, oracle, output->handle, spec);
      }
    }
  });
}

TEST(CombineBackward, DotProductsOfLongRowsKeepTheDocumentedOrder) {
  Problem problem = sample_problem(Layout::kExpertMajor, 2, 6);
  constexpr std::int64_t kHidden = 3000;
  problem.hidden = kHidden;
  check_problem(problem, [oracle = Oracle(problem)](RankContext& context, Group& group) {
    const auto output = checked_dispatch(context, group, oracle);
    if (!output) return;
    for (const std::int64_t hidden :
         {std::int64_t{248}, std::int64_t{256}, std::int64_t{264}, kHidden}) {
      checked_combine_backward(context, group, oracle, output->handle,
                               {.hidden = hidden, .weighted = true});
    }
  });
}

TEST(Backward, AllGradientsAreRightWhenOneRankReceivesEverything) {
  for (const int num_ranks : {1, 2, 4}) {
    Routing routing = uniform_routing(num_ranks, 30, 2, 4 * num_ranks, 5);
    send_all_to_rank(routing, 0);
    check_problems(in_both_layouts(routing, 1),
                   [](RankContext& context, Group& group, const Oracle& oracle) {
                     checked_step(context, group, oracle, {},
                                  {.weighted = oracle.problem().layout == Layout::kExpertMajor});
                   });
  }
}

}  // namespace
}  // namespace ep::test
