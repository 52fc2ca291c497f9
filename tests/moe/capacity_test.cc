// SPDX-License-Identifier: Apache-2.0
// Tests of static capacities, overflow and caller-given outputs.
#include "tests/moe/sample_problems.h"
#include "tests/support/device.h"
#include "tests/support/moe_ops.h"

#include <gtest/gtest.h>

namespace ep::test {
namespace {

/// What each rank needs, plus `more`, at least 0.
void give_capacity(Problem& problem, std::int64_t more) {
  problem.capacity.clear();
  const Oracle exact(problem);
  for (int rank = 0; rank < problem.routing.num_ranks(); ++rank) {
    problem.capacity.emplace_back(std::max<std::int64_t>(exact.rank(rank).num_needed() + more, 0));
  }
}

class Capacity : public ::testing::TestWithParam<Layout> {
 protected:
  Problem problem_with(std::int64_t more) const {
    Problem problem = sample_problem(GetParam());
    if (GetParam() == Layout::kExpertMajor) problem.alignment = 4;
    problem.num_scales = 3;
    give_capacity(problem, more);
    return problem;
  }
  std::vector<Problem> problems_around_the_need() const {
    std::vector<Problem> problems;
    for (const std::int64_t more : {0, 1, 100, -1, -2, -7, -20, -1'000'000}) {
      problems.push_back(problem_with(more));
    }
    return problems;
  }
};

INSTANTIATE_TEST_SUITE_P(Layouts, Capacity, ::testing::ValuesIn(kLayouts), [](const auto& layout) {
  return layout.param == Layout::kFlat ? "flat" : "expert_major";
});

TEST_P(Capacity, TooFewRowsDropTheLastOnesAndReportTheNeed) {
  check_problems(problems_around_the_need(),
                 [](RankContext& context, Group& group, const Oracle& oracle) {
                   for (const CopyWay way : {CopyWay::kSender, CopyWay::kReceiver}) {
                     checked_dispatch(context, group, oracle, {.copy_way = way});
                   }
                 });
}

TEST_P(Capacity, CallerGivenOutputsAreWrittenInsideOnly) {
  check_problems(
      problems_around_the_need(), [](RankContext& context, Group& group, const Oracle& oracle) {
        for (const CopyWay way : {CopyWay::kSender, CopyWay::kReceiver}) {
          checked_dispatch(context, group, oracle, {.copy_way = way, .gives_buffers = true});
        }
      });
}

TEST_P(Capacity, CombineAndBackwardSkipDroppedRows) {
  const bool weighted = GetParam() == Layout::kExpertMajor;
  check_problems(problems_around_the_need(),
                 [weighted](RankContext& context, Group& group, const Oracle& oracle) {
                   for (const CombineWay way : {CombineWay::kPull, CombineWay::kPush}) {
                     checked_step(context, group, oracle, {},
                                  {.weighted = weighted, .has_bias = true, .way = way});
                   }
                 });
}

TEST_P(Capacity, MayDifferFromRankToRank) {
  Problem problem = sample_problem(GetParam());
  give_capacity(problem, 0);
  problem.capacity[0] = 0;
  *problem.capacity[1] += 50;
  *problem.capacity[2] /= 2;
  check_problems({problem}, [](RankContext& context, Group& group, const Oracle& oracle) {
    checked_step(context, group, oracle, {.gives_buffers = true}, {});
  });
}

TEST_P(Capacity, OnlySomeOutputsMayBeGiven) {
  Problem problem = sample_problem(GetParam());
  give_capacity(problem, 5);
  check_problem(problem, [oracle = Oracle(problem)](RankContext& context, Group& group) {
    const Problem& given = oracle.problem();
    const RankInputs inputs(given, context.rank());
    DispatchOptions options;
    options.layout = given.layout;
    options.experts = map_of(given);
    auto x = group.allocate(given.dtype, {*given.capacity_of(context.rank()), given.hidden});
    if (!context.expect_ok(x.status(), "allocate")) return;
    options.out.x = *x;
    const auto output = dispatch(group, inputs.views(), options);
    if (!context.expect_ok(output.status(), "dispatch")) return;
    // On a GPU the test sees copies of both.
    const bool is_seen = test_backend() == Backend::kHost;
    context.expect(!is_seen || output->x.view().data == x->view().data,
                   "another tensor was returned");
    context.expect_nothing(check_dispatch(oracle, context.rank(), *output), given.describe());
  });
}

/// Lanes that count, number and send run at the same time: one launch does all of it.
TEST_P(Capacity, LanesOfSeveralChannelsShareTheRouting) {
  Problem problem{.routing = uniform_routing(3, 300, 4, 96, 5), .layout = GetParam()};
  give_capacity(problem, 0);
  std::vector<Problem> problems;
  for (int round = 0; round < scaled_rounds(300, 5'000); ++round) {
    problem.call = static_cast<std::uint32_t>(round) + 1;
    problems.push_back(problem);
  }
  check_problems(problems, [](RankContext& context, Group& group, const Oracle& oracle) {
    poison_pool(context, group, 1 << 20);
    const int num_sms = 2 + static_cast<int>(oracle.problem().call % 3);
    checked_dispatch(context, group, oracle, {.num_sms = num_sms});
  });
}

TEST_P(Capacity, OutputsMayBeUsedAgain) {
  Problem problem = problem_with(0);
  std::vector<Problem> problems;
  for (std::uint32_t call = 1; call <= 20; ++call) {
    problem.call = call;
    problems.push_back(problem);
  }
  check_problems(problems, [](RankContext& context, Group& group, const Oracle& oracle) {
    checked_dispatch(context, group, oracle, {.gives_buffers = true});
  });
}

}  // namespace
}  // namespace ep::test
