// SPDX-License-Identifier: Apache-2.0
// S07: everything to one expert, everything to one rank.
#include "tests/moe/sample_problems.h"
#include "tests/support/moe_ops.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

namespace ep::test {
namespace {

class Skew : public ::testing::TestWithParam<int> {
 protected:
  std::vector<std::int64_t> token_counts() const {
    if (is_full_scale()) return {513, 1025, 4096, 16'384};
    return {513, 1025, 4096 / kSanitizerSlowdown};
  }
  void check(const std::function<void(Routing&)>& skew) const {
    std::vector<Problem> problems;
    for (const std::int64_t num_tokens : token_counts()) {
      Routing routing = uniform_routing(GetParam(), num_tokens, 8, 8 * GetParam(), 4);
      skew(routing);
      for (Problem& problem : in_both_layouts(routing, static_cast<std::uint32_t>(num_tokens))) {
        problem.hidden = 8;
        problems.push_back(problem);
      }
    }
    check_problems(problems, [](RankContext& context, Group& group, const Oracle& oracle) {
      const auto output = checked_dispatch(context, group, oracle);
      if (!output) return;
      checked_combine(context, group, oracle, output->handle, {.hidden = 8});
      checked_dispatch_backward(context, group, oracle, output->handle, {.hidden = 8});
    });
  }
};

INSTANTIATE_TEST_SUITE_P(Ranks, Skew, ::testing::Values(2, 4));

TEST_P(Skew, EveryTokenMayGoToOneExpert) {
  check([](Routing& routing) { send_all_to_expert(routing, 3); });
}

TEST_P(Skew, EveryTokenMayGoToTheSameEightExpertsOfOneRank) {
  check([](Routing& routing) { send_all_to_rank(routing, routing.num_ranks() - 1); });
}

}  // namespace
}  // namespace ep::test
