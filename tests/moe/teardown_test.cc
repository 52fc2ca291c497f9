// SPDX-License-Identifier: Apache-2.0
// S18: groups, handles and tensors may go in any order, any number of times, and leave nothing
// behind.
#include "tests/moe/sample_problems.h"
#include "tests/support/moe_ops.h"
#include "tests/support/process_state.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

namespace ep::test {
namespace {

constexpr int kNumRanks = 3;

/// One rank's objects; a test destroys them in its own order.
struct Held {
  std::unique_ptr<Group> group{};
  std::optional<DispatchOutput> output{};
  DispatchHandle handle{};
};

Held hold(RankContext& context, const Oracle& oracle) {
  Held held;
  auto group = Group::create(context.bootstrap(), config_for(oracle.problem()));
  if (!context.expect_ok(group.status(), "create")) return held;
  held.group = std::move(group).value();
  held.output = checked_dispatch(context, *held.group, oracle);
  if (held.output) held.handle = held.output->handle;
  return held;
}

void check_teardown(const std::function<void(RankContext&, Held&)>& destroy,
                    Launch launch = Launch::kThreads) {
  const Oracle oracle(sample_problem(Layout::kExpertMajor, kNumRanks, 4));
  check_ranks({.num_ranks = kNumRanks, .launch = launch}, [&](RankContext& context) {
    Held held = hold(context, oracle);
    if (held.output) destroy(context, held);
  });
}

TEST(Teardown, TensorsOutliveTheirGroup) {
  const Oracle oracle(sample_problem(Layout::kExpertMajor, kNumRanks, 4));
  check_ranks({.num_ranks = kNumRanks}, [&](RankContext& context) {
    Held held = hold(context, oracle);
    if (!held.output) return;
    held.group.reset();
    held.handle = {};
    context.expect_nothing(check_dispatch(oracle, context.rank(), *held.output),
                           "after the group is gone");
  });
}

TEST(Teardown, HandlesMayOutliveTheirGroup) {
  check_teardown([](RankContext&, Held& held) {
    held.group.reset();
    held.output.reset();
    held.handle = {};
  });
}

TEST(Teardown, EverythingMayGoBeforeTheGroup) {
  check_teardown([](RankContext&, Held& held) {
    held.handle = {};
    held.output.reset();
    held.group.reset();
  });
}

TEST(Teardown, RanksMayLeaveAtDifferentTimes) {
  for (const Launch launch : {Launch::kThreads, Launch::kForks}) {
    check_teardown(
        [](RankContext& context, Held& held) {
          std::this_thread::sleep_for(std::chrono::milliseconds(30 * context.rank()));
          held.group.reset();
        },
        launch);
  }
}

TEST(Teardown, ARankThatStaysLongerCanStillReadItsTensors) {
  const Oracle oracle(sample_problem(Layout::kFlat, kNumRanks, 4));
  for (const Launch launch : {Launch::kThreads, Launch::kForks}) {
    check_ranks({.num_ranks = kNumRanks, .launch = launch}, [&](RankContext& context) {
      Held held = hold(context, oracle);
      if (!held.output || context.rank() != 0) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      context.expect_nothing(check_dispatch(oracle, 0, *held.output), "after the peers are gone");
    });
  }
}

TEST(Teardown, SeveralGroupsCoexistAndGoInAnyOrder) {
  const Oracle oracle(sample_problem(Layout::kFlat, kNumRanks, 4));
  check_ranks({.num_ranks = kNumRanks}, [&](RankContext& context) {
    Held first = hold(context, oracle);
    Held second = hold(context, oracle);
    if (!first.output || !second.output) return;
    checked_combine(context, *first.group, oracle, first.handle, {});
    first.group.reset();
    checked_combine(context, *second.group, oracle, second.handle, {});
  });
}

/// Creates, uses and destroys a group `num_cycles` times on every rank.
void run_cycles(const Oracle& oracle, int num_cycles) {
  for (int cycle = 0; cycle < num_cycles; ++cycle) {
    check_problem(oracle.problem(), [&](RankContext& context, Group& group) {
      checked_step(context, group, oracle, {}, {.place = RowsPlace::kOutside});
    });
  }
}

TEST(Teardown, ManyCyclesLeaveNothingBehind) {
  const Oracle oracle(sample_problem(Layout::kExpertMajor, kNumRanks, 4));
  constexpr int kWarmUp = 10;
  run_cycles(oracle, kWarmUp);
  const ProcessState before = process_state();
  const auto names_before = named_leftovers("ep-test");
  run_cycles(oracle, scaled_rounds(200, 2000));
  EXPECT_TRUE(await_num_threads(before.num_threads, std::chrono::seconds(20)));
  const ProcessState after = process_state();
  EXPECT_EQ(after.num_fds, before.num_fds);
  EXPECT_EQ(named_leftovers("ep-test"), names_before);
  constexpr std::int64_t kSlackBytes = 16 << 20;
  // Sanitizers keep freed memory.
  if (kSanitizerSlowdown == 1) {
    EXPECT_LE(after.num_mappings, before.num_mappings + 8);
    EXPECT_LE(after.resident_bytes, before.resident_bytes + kSlackBytes);
  }
}

TEST(Teardown, ARankMayLeaveAfterAnErrorAndTheGroupIsMadeAgain) {
  const Oracle oracle(sample_problem(Layout::kFlat, kNumRanks, 4));
  for (int cycle = 0; cycle < 3; ++cycle) {
    check_problem(oracle.problem(), [&](RankContext& context, Group& group) {
      const auto refused = dispatch(group, DispatchInput{});
      context.expect(refused.status().code() == Errc::kInvalidArgument, "an empty input was taken");
    });
  }
}

}  // namespace
}  // namespace ep::test
