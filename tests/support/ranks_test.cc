// SPDX-License-Identifier: Apache-2.0
// Tests that the harness itself reports failures, crashes and hangs of ranks.
#include "tests/support/ranks.h"

#include <gtest/gtest.h>

#include <csignal>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace ep::test {
namespace {

class Ranks : public ::testing::TestWithParam<Launch> {
 protected:
  RanksOptions options(int num_ranks) const {
    return {.num_ranks = num_ranks, .launch = GetParam()};
  }
};

TEST_P(Ranks, EveryRankRunsOnceAndReportsItsBytes) {
  const auto reports = check_ranks(options(5), [](RankContext& context) {
    context.expect(context.num_ranks() == 5, "wrong size");
    context.bytes.assign(static_cast<std::size_t>(context.rank()), std::byte{7});
  });
  ASSERT_EQ(reports.size(), 5U);
  for (std::size_t rank = 0; rank < 5; ++rank) EXPECT_EQ(reports[rank].bytes.size(), rank);
}

TEST_P(Ranks, RanksMeetInTheBootstrap) {
  check_ranks(options(3), [](RankContext& context) {
    const std::string mine(static_cast<std::size_t>(context.rank()) + 1, 'x');
    const auto all =
        context.bootstrap().all_gather(std::as_bytes(std::span(mine)), std::chrono::seconds(20));
    if (!context.expect_ok(all.status(), "all_gather")) return;
    for (std::size_t rank = 0; rank < 3; ++rank)
      context.expect((*all)[rank].size() == rank + 1, "wrong contribution");
  });
}

TEST_P(Ranks, AFailureOfOneRankIsReportedWithItsStep) {
  const auto reports = run_ranks(options(3), [](RankContext& context) {
    context.step("thinking", 42);
    context.expect(context.rank() != 1, "does not like to be 1");
  });
  EXPECT_TRUE(reports[0].failures.empty());
  ASSERT_EQ(reports[1].failures.size(), 1U);
  EXPECT_EQ(reports[1].failures[0], "at thinking 42: does not like to be 1");
}

TEST_P(Ranks, AnExceptionIsAFailure) {
  const auto reports = run_ranks(options(2), [](RankContext& context) {
    if (context.rank() == 0) throw std::runtime_error("thrown");
  });
  ASSERT_EQ(reports[0].failures.size(), 1U);
  EXPECT_NE(reports[0].failures[0].find("thrown"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Launches,
                         Ranks,
                         ::testing::Values(Launch::kThreads, Launch::kForks),
                         [](const auto& launch) { return std::string(name_of(launch.param)); });

TEST(ForkedRanks, AKilledRankIsReportedWithItsSignal) {
  const auto reports =
      run_ranks({.num_ranks = 2, .launch = Launch::kForks}, [](RankContext& context) {
        if (context.rank() == 1) raise(SIGKILL);
      });
  EXPECT_EQ(reports[0].exit_signal, 0);
  EXPECT_EQ(reports[1].exit_signal, SIGKILL);
}

TEST(ForkedRanks, ALargeReportArrivesWhole) {
  constexpr std::size_t kBytes = 5'000'000;
  const auto reports =
      check_ranks({.num_ranks = 2, .launch = Launch::kForks},
                  [](RankContext& context) { context.bytes.assign(kBytes, std::byte{3}); });
  EXPECT_EQ(reports[1].bytes.size(), kBytes);
}

TEST(ForkedRanks, AHangIsAFailureAndLeavesNoProcess) {
  RanksOptions options{.num_ranks = 2, .launch = Launch::kForks, .limit = std::chrono::seconds(2)};
  pid_t hung = 0;
  options.while_running = [&](std::span<const pid_t> pids) { hung = pids[1]; };
  const auto reports = run_ranks(options, [](RankContext& context) {
    context.step("hanging");
    if (context.rank() == 1) std::this_thread::sleep_for(std::chrono::hours(1));
  });
  EXPECT_TRUE(reports[0].failures.empty());
  ASSERT_EQ(reports[1].failures.size(), 1U);
  EXPECT_EQ(reports[1].failures[0], "hang: killed by the watchdog");
  EXPECT_NE(kill(hung, 0), 0);
}

TEST(ThreadedRanks, AHangEndsTheProcess) {
  const auto reports =
      run_ranks({.num_ranks = 1, .launch = Launch::kForks}, [](RankContext& /*context*/) {
        run_ranks({.num_ranks = 2, .limit = std::chrono::seconds(1)}, [](RankContext& context) {
          context.step("hanging");
          if (context.rank() == 1) std::this_thread::sleep_for(std::chrono::hours(1));
        });
      });
  EXPECT_EQ(reports[0].exit_signal, SIGABRT);
}

}  // namespace
}  // namespace ep::test
