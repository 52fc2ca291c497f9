// SPDX-License-Identifier: Apache-2.0
// Operations around the wrap of the 32-bit tags.
#include "tests/moe/sample_problems.h"
#include "tests/support/moe_ops.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace ep::test {
namespace {

constexpr std::uint64_t kTagWrap = std::uint64_t{1} << 32;

void step_from_epoch(std::uint64_t first_epoch) {
  for (const Layout layout : kLayouts) {
    const Problem problem = sample_problem(layout, 2, 3);
    GroupConfig config = config_for(problem);
    config.first_epoch = first_epoch;
    config.ring_slots = 1;
    check_group(
        {.num_ranks = 2}, config, [oracle = Oracle(problem)](RankContext& context, Group& group) {
          for (int round = 0; round < 4; ++round) {
            context.step("round", round);
            const CombineWay way = round % 2 == 0 ? CombineWay::kPush : CombineWay::kPull;
            const CombineSpec spec{.way = way, .place = RowsPlace::kOutside};
            if (!checked_step(context, group, oracle, {.copy_way = CopyWay::kReceiver}, spec))
              return;
          }
        });
  }
}

TEST(EpochWrap, OperationsGoOnWhenTheTagWraps) {
  for (const std::uint64_t before : {8, 5, 4, 3, 2, 1}) step_from_epoch(kTagWrap - before);
}

TEST(EpochWrap, AGroupMayStartBehindTheWrap) {
  step_from_epoch(kTagWrap);
  step_from_epoch(kTagWrap + 1);
  step_from_epoch(3 * kTagWrap - 3);
}

}  // namespace
}  // namespace ep::test
