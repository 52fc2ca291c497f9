// SPDX-License-Identifier: Apache-2.0
// Fibers: roles that wait for each other share one thread.
#include "fabric/host/fibers.h"

#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <time.h>
#include <vector>

namespace ep::test {
namespace {

using fabric::FiberSet;
using Tasks = std::vector<FiberSet::Task>;

/// As a role waits: looks, then relaxes.
template <class Condition>
void wait_until(Condition is_done) {
  for (int polls = 1; !is_done(); ++polls) primitives::relax(polls);
}

TEST(FiberSet, RunsEveryTaskOnce) {
  FiberSet fibers;
  for (const std::size_t num_tasks : {1, 5, 0, 3, 9, 2}) {
    std::vector<int> num_runs(num_tasks);
    Tasks tasks;
    for (int& runs : num_runs) tasks.emplace_back([&runs] { ++runs; });
    fibers.run(tasks);
    EXPECT_EQ(num_runs, std::vector<int>(num_tasks, 1));
  }
}

TEST(FiberSet, RunsEverythingOnTheCallingThread) {
  FiberSet fibers;
  std::thread::id seen[2];
  const Tasks tasks = {[&seen] { seen[0] = std::this_thread::get_id(); },
                       [&seen] {
                         primitives::relax(1);
                         seen[1] = std::this_thread::get_id();
                       }};
  fibers.run(tasks);
  EXPECT_EQ(seen[0], std::this_thread::get_id());
  EXPECT_EQ(seen[1], std::this_thread::get_id());
}

TEST(FiberSet, RolesThatWaitForEachOtherBothEnd) {
  FiberSet fibers;
  int ball = 0;
  const auto play = [&ball](int own) {
    for (int turn = 0; turn < 20; ++turn) {
      wait_until([&] { return ball % 2 == own; });
      ++ball;
    }
  };
  const Tasks tasks = {[&] { play(0); }, [&] { play(1); }};
  for (int round = 1; round <= 50; ++round) {
    fibers.run(tasks);
    EXPECT_EQ(ball, 40 * round);
  }
}

TEST(FiberSet, InterleavesAtEveryPoll) {
  FiberSet fibers;
  std::string order;
  const auto spell = [&order](char letter) {
    for (int polls = 1; polls <= 3; ++polls) {
      order += letter;
      primitives::relax(polls);
    }
  };
  const Tasks tasks = {[&] { spell('a'); }, [&] { spell('b'); }, [&] { spell('c'); }};
  fibers.run(tasks);
  EXPECT_EQ(order, "abcabcabc");
}

TEST(FiberSet, AChainOfWaitsAgainstTheOrderOfTheTasksEnds) {
  constexpr int kTasks = 12;
  FiberSet fibers;
  int num_ended = 0;
  Tasks tasks;
  for (int i = 0; i < kTasks; ++i) {
    tasks.emplace_back([&num_ended, i] {
      wait_until([&] { return num_ended == kTasks - 1 - i; });
      ++num_ended;
    });
  }
  fibers.run(tasks);
  EXPECT_EQ(num_ended, kTasks);
}

TEST(FiberSet, KeepsWhatATaskHasOnItsStack) {
  constexpr std::size_t kDeepBytes = std::size_t{128} * 1024;
  FiberSet fibers;
  int num_wrong = 0;
  const auto fill = [&num_wrong](unsigned char value) {
    std::array<unsigned char, kDeepBytes> deep;
    for (int polls = 1; polls <= 4; ++polls) {
      std::memset(deep.data(), value + polls, deep.size());
      primitives::relax(polls);
      for (const unsigned char byte : deep) {
        if (byte != value + polls) ++num_wrong;
      }
    }
  };
  const Tasks tasks = {[&] { fill(10); }, [&] { fill(20); }, [&] { fill(30); }};
  fibers.run(tasks);
  EXPECT_EQ(num_wrong, 0);
}

TEST(FiberSet, IsTheYielderOfItsThreadWhileItRuns) {
  FiberSet fibers;
  ASSERT_EQ(primitives::current_yielder(), nullptr);
  const Tasks tasks = {[&] { EXPECT_EQ(primitives::current_yielder(), &fibers); }};
  fibers.run(tasks);
  EXPECT_EQ(primitives::current_yielder(), nullptr);
}

TEST(FiberSet, ServesWhicheverThreadHoldsIt) {
  FiberSet fibers;
  int ball = 0;
  const Tasks tasks = {[&] {
                         wait_until([&] { return ball % 2 == 1; });
                         ++ball;
                       },
                       [&] { ++ball; }};
  fibers.run(tasks);
  std::thread([&] { fibers.run(tasks); }).join();
  EXPECT_EQ(ball, 4);
}

/// A role that counts whenever it is its turn among the four of two threads.
void count_in_turn(std::atomic<int>& count, int own_turn) {
  for (int i = 0; i < 20; ++i) {
    wait_until([&] { return count.load(std::memory_order_acquire) % 4 == own_turn; });
    count.fetch_add(1, std::memory_order_release);
  }
}

void run_two_roles(std::atomic<int>& count, int first_turn) {
  FiberSet fibers;
  const Tasks tasks = {[&] { count_in_turn(count, first_turn); },
                       [&] { count_in_turn(count, first_turn + 2); }};
  fibers.run(tasks);
}

TEST(FiberSet, RolesOnTwoThreadsWaitForEachOther) {
  for (int round = 0; round < scaled_rounds(20, 500); ++round) {
    std::atomic<int> count{0};
    std::thread other([&] { run_two_roles(count, 1); });
    run_two_roles(count, 0);
    other.join();
    EXPECT_EQ(count.load(), 80);
  }
}

std::chrono::nanoseconds cpu_time_of_this_thread() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

/// All roles of this thread wait for another one.
void expect_parked_wait(std::size_t num_roles) {
  std::atomic<bool> is_there{false};
  std::thread other([&is_there] {
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    is_there.store(true, std::memory_order_release);
  });
  FiberSet fibers;
  const Tasks tasks(num_roles, [&is_there] {
    wait_until([&] { return is_there.load(std::memory_order_acquire); });
  });
  const auto wall_start = std::chrono::steady_clock::now();
  const auto cpu_start = cpu_time_of_this_thread();
  fibers.run(tasks);
  const auto cpu = cpu_time_of_this_thread() - cpu_start;
  EXPECT_LT(cpu, (std::chrono::steady_clock::now() - wall_start) / 2) << num_roles << " roles";
  other.join();
}

TEST(FiberSet, ParksWhereNoRoleMakesProgress) {
  for (const std::size_t num_roles : {1, 2, 5}) expect_parked_wait(num_roles);
}

}  // namespace
}  // namespace ep::test
