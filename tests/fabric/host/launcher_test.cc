// SPDX-License-Identifier: Apache-2.0
// The launcher: which lane runs where, with which scratch, and what a second launch reuses.
#include "fabric/host/launcher.h"

#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace ep::test {
namespace {

using fabric::HostLauncher;
using primitives::Lane;

/// Which lanes a launch ran.
class LaneLog {
 public:
  struct Entry {
    std::byte* scratch = nullptr;
    std::thread::id thread;
  };
  using Key = std::pair<std::size_t, int>;  // (role, channel)

  HostLauncher::Role role(std::size_t index) {
    return [this, index](const Lane& lane) {
      const std::lock_guard lock(mutex_);
      ++num_runs_;
      entries_[{index, lane.channel}] = {lane.scratch, std::this_thread::get_id()};
    };
  }
  /// By (role, channel); each must have run once.
  std::map<Key, Entry> take() {
    EXPECT_EQ(entries_.size(), std::exchange(num_runs_, 0U));
    return std::exchange(entries_, {});
  }

 private:
  std::mutex mutex_;
  std::map<Key, Entry> entries_;
  std::size_t num_runs_ = 0;
};

std::vector<HostLauncher::Role> logged_roles(LaneLog& log, std::size_t count) {
  std::vector<HostLauncher::Role> roles;
  for (std::size_t i = 0; i < count; ++i) roles.push_back(log.role(i));
  return roles;
}

TEST(HostLauncher, RunsEveryRoleOncePerChannel) {
  HostLauncher launcher;
  LaneLog log;
  for (const int num_channels : {1, 4, 2, 7, 1}) {
    for (const std::size_t num_roles : {1, 3, 5, 2}) {
      const auto roles = logged_roles(log, num_roles);
      launcher.run({.num_channels = num_channels, .roles = roles});
      const auto lanes = log.take();
      EXPECT_EQ(lanes.size(), num_roles * static_cast<std::size_t>(num_channels));
      EXPECT_EQ(lanes.rbegin()->first.second, num_channels - 1);
    }
  }
}

TEST(HostLauncher, AChannelIsAThreadAndTheFirstIsTheCaller) {
  constexpr int kChannels = 3;
  HostLauncher launcher;
  LaneLog log;
  const auto roles = logged_roles(log, 2);
  launcher.run({.num_channels = kChannels, .roles = roles});
  auto lanes = log.take();
  std::set<std::thread::id> threads;
  for (int channel = 0; channel < kChannels; ++channel) {
    const std::thread::id thread = lanes[{0, channel}].thread;
    threads.insert(thread);
    EXPECT_EQ((lanes[{1, channel}].thread), thread);
  }
  EXPECT_EQ((lanes[{0, 0}].thread), std::this_thread::get_id());
  EXPECT_EQ(threads.size(), static_cast<std::size_t>(kChannels));
}

TEST(HostLauncher, KeepsThreadsAndScratchBetweenLaunches) {
  HostLauncher launcher;
  LaneLog log;
  const auto roles = logged_roles(log, 3);
  const auto lanes_of = [&](int num_channels, std::int64_t scratch_bytes) {
    launcher.run({.num_channels = num_channels, .roles = roles, .scratch_bytes = scratch_bytes});
    return log.take();
  };
  const auto first = lanes_of(4, 4'096);
  for (const auto& [num_channels, scratch_bytes] : {std::pair{4, 4'096}, {2, 100}, {4, 4'096}}) {
    for (const auto& [key, lane] : lanes_of(num_channels, scratch_bytes)) {
      EXPECT_EQ(lane.scratch, first.at(key).scratch);
      EXPECT_EQ(lane.thread, first.at(key).thread);
    }
  }
}

TEST(HostLauncher, EveryLaneHasScratchOfItsOwn) {
  constexpr std::int64_t kScratchBytes = 1'000;
  HostLauncher launcher;
  std::atomic<int> num_wrong{0};
  const auto use = [&num_wrong](const Lane& lane, int value) {
    std::memset(lane.scratch, value, kScratchBytes);
    for (int polls = 1; polls < 20; ++polls) primitives::relax(polls);
    for (std::int64_t i = 0; i < kScratchBytes; ++i) {
      if (lane.scratch[i] != static_cast<std::byte>(value)) ++num_wrong;
    }
  };
  const std::vector<HostLauncher::Role> roles = {
      [&](const Lane& lane) { use(lane, 2 * lane.channel); },
      [&](const Lane& lane) { use(lane, 2 * lane.channel + 1); }};
  for (int launch = 0; launch < 20; ++launch) {
    launcher.run({.num_channels = 3, .roles = roles, .scratch_bytes = kScratchBytes});
  }
  EXPECT_EQ(num_wrong.load(), 0);
}

TEST(HostLauncher, ScratchGrowsWithTheLaunch) {
  HostLauncher launcher;
  const std::vector<HostLauncher::Role> small = {
      [](const Lane& lane) { std::memset(lane.scratch, 1, 16); }};
  const std::vector<HostLauncher::Role> large = {
      [](const Lane& lane) { std::memset(lane.scratch, 2, 1 << 20); },
      [](const Lane& lane) { std::memset(lane.scratch, 3, 1 << 20); }};
  launcher.run({.num_channels = 2, .roles = small, .scratch_bytes = 16});
  launcher.run({.num_channels = 3, .roles = large, .scratch_bytes = 1 << 20});
}

/// Plain writes of all lanes are seen by the caller, plain writes of the caller by all lanes.
TEST(HostLauncher, ALaunchOrdersWhatCallerAndLanesWrite) {
  constexpr int kChannels = 3;
  HostLauncher launcher;
  std::vector<std::int64_t> numbers(kChannels);
  std::int64_t step = 0;
  const std::vector<HostLauncher::Role> roles = {
      [&](const Lane& lane) { numbers[static_cast<std::size_t>(lane.channel)] += step; }};
  std::int64_t expected = 0;
  for (step = 1; step <= scaled_rounds(200, 5'000); ++step) {
    launcher.run({.num_channels = kChannels, .roles = roles});
    expected += step;
    ASSERT_EQ(numbers, std::vector<std::int64_t>(kChannels, expected));
  }
}

TEST(HostLauncher, RolesOfOneChannelWaitForEachOther) {
  HostLauncher launcher;
  std::atomic<int> num_arrived{0};
  constexpr int kChannels = 2;
  const auto meet = [&num_arrived](const Lane&) {
    ++num_arrived;
    for (int polls = 1; num_arrived.load() < 3 * kChannels; ++polls) primitives::relax(polls);
  };
  const std::vector<HostLauncher::Role> roles(3, meet);
  launcher.run({.num_channels = kChannels, .roles = roles});
  EXPECT_EQ(num_arrived.load(), 3 * kChannels);
}

TEST(HostLauncher, ManyLaunchersLiveSideBySide) {
  std::atomic<int> num_lanes{0};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.emplace_back([&num_lanes] {
      HostLauncher launcher;
      const std::vector<HostLauncher::Role> roles(2, [&](const Lane&) { ++num_lanes; });
      for (int launch = 0; launch < 10; ++launch) {
        launcher.run({.num_channels = 2, .roles = roles});
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(num_lanes.load(), 4 * 10 * 2 * 2);
}

TEST(HostLauncher, EndsItsThreadsWithoutALaunch) {
  const HostLauncher unused;
  HostLauncher used;
  const std::vector<HostLauncher::Role> roles(1, [](const Lane&) {});
  used.run({.num_channels = 5, .roles = roles});
}

}  // namespace
}  // namespace ep::test
