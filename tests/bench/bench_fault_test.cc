// SPDX-License-Identifier: Apache-2.0
// Ranks that die, stop or never come: exit code 3, an error that names them, and no process left.
#include "tests/bench/bench_process.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <unistd.h>

namespace ep::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kNumRanks = 4;
constexpr const char* kEndless =
    "dispatch --ranks 4 --tokens 64 --hidden 512 --iters 10000000 --timeout 2";
/// Into the timed loop.
constexpr std::chrono::milliseconds kSettle{700};

void expect_all_gone(const std::vector<pid_t>& pids) {
  for (pid_t pid : pids) EXPECT_TRUE(is_gone_within(pid, std::chrono::seconds(2))) << pid;
}

/// Errors of the other ranks name the victim.
void expect_blame(const BenchOutcome& outcome, std::size_t victim) {
  for (std::size_t rank = 0; rank < kNumRanks; ++rank) {
    if (rank == victim) continue;
    const std::string start = "ep-bench: rank " + std::to_string(rank) + ": ";
    const std::size_t at = outcome.err.find(start);
    ASSERT_NE(at, std::string::npos) << outcome.err;
    const std::string line = outcome.err.substr(at + start.size(), outcome.err.find('\n', at) - at);
    EXPECT_NE(line.find("rank " + std::to_string(victim)), std::string::npos) << line;
  }
}

class BenchKill : public testing::TestWithParam<std::size_t> {};

TEST_P(BenchKill, OfARankEndsTheOthersWithItsName) {
  BenchProcess bench(words_of(kEndless));
  const std::vector<pid_t> ranks = bench.wait_for_children(kNumRanks);
  ASSERT_EQ(ranks.size(), kNumRanks);
  std::this_thread::sleep_for(kSettle);
  const Clock::time_point start = Clock::now();
  kill(ranks[GetParam()], SIGKILL);
  const BenchOutcome outcome = bench.wait();
  EXPECT_LT(Clock::now() - start, bench_patience());
  EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
  expect_blame(outcome, GetParam());
  expect_all_gone(ranks);
}

INSTANTIATE_TEST_SUITE_P(Each, BenchKill, testing::Values(0, 1, 3));

TEST(BenchFault, AStoppedRankEndsTheOthersWithinTheDeadlineAndIsKilled) {
  BenchProcess bench(words_of(kEndless));
  const std::vector<pid_t> ranks = bench.wait_for_children(kNumRanks);
  ASSERT_EQ(ranks.size(), kNumRanks);
  std::this_thread::sleep_for(kSettle);
  kill(ranks[2], SIGSTOP);
  const BenchOutcome outcome = bench.wait();
  EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
  EXPECT_NE(outcome.err.find("rank 2: hangs, killed"), std::string::npos) << outcome.err;
  expect_all_gone(ranks);
}

TEST(BenchFault, TheRanksDieWithTheProgram) {
  BenchProcess bench(words_of(kEndless));
  const std::vector<pid_t> ranks = bench.wait_for_children(kNumRanks);
  ASSERT_EQ(ranks.size(), kNumRanks);
  std::this_thread::sleep_for(kSettle);
  kill(bench.pid(), SIGKILL);
  bench.wait();
  expect_all_gone(ranks);
}

TEST(BenchFault, APeerThatNeverComesIsExitCode3) {
  const Environment alone = {{"RANK", "0"},
                             {"WORLD_SIZE", "2"},
                             {"EP_MASTER_ADDR", "127.0.0.1"},
                             {"EP_MASTER_PORT", std::to_string(20'000 + getpid() % 20'000)}};
  const BenchOutcome outcome = run_bench(words_of("moe --tokens 8 --hidden 64 --timeout 1"), alone);
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_NE(outcome.err.find("1"), std::string::npos) << outcome.err;
}

TEST(BenchFault, WrongNumbersInTheEnvironmentAreExitCode3) {
  for (const Environment& wrong :
       {Environment{{"RANK", "2"}, {"WORLD_SIZE", "2"}},
        Environment{{"RANK", "zero"}, {"WORLD_SIZE", "2"}}, Environment{{"RANK", "0"}},
        Environment{{"RANK", "0"}, {"WORLD_SIZE", "-1"}}}) {
    const BenchOutcome outcome =
        run_bench(words_of("moe --tokens 8 --hidden 64 --timeout 1"), wrong);
    EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
    EXPECT_NE(outcome.err.find("ep-bench: rank"), std::string::npos);
  }
}

TEST(BenchFault, OtherRanksThanTheLauncherStartedAreRefused) {
  const BenchOutcome outcome =
      run_bench(words_of("moe --ranks 4 --timeout 1"), {{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
  EXPECT_NE(outcome.err.find("--ranks 4, but the launcher started 1"), std::string::npos)
      << outcome.err;
}

TEST(BenchFault, AskedForForkLauncherVariablesDoNotMatter) {
  const BenchOutcome outcome =
      run_bench(words_of("moe --ranks 2 --launch fork --tokens 8 --hidden 64 --iters 2"),
                {{"RANK", "5"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "192.0.2.1"}});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

}  // namespace
}  // namespace ep::test
