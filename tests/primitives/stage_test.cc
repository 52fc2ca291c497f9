// SPDX-License-Identifier: Apache-2.0
// Stages: the sum of what the lanes finished, and what it publishes.
#include "primitives/stage.h"

#include "tests/primitives/virtual_exec.h"
#include "tests/support/control_window.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

namespace ep::test {
namespace {

using layout::Stage;
using primitives::SoloGroup;
using primitives::WaitSite;

TEST(Stage, AWaitForNothingIsOverAtOnce) {
  ControlWindow window({.num_ranks = 1});
  VirtualExec::restart();
  const primitives::OpContext<VirtualExec> op(window.params(0));
  EXPECT_TRUE(stage_wait(SoloGroup{}, op, Stage::kCounted, 0));
  EXPECT_EQ(VirtualExec::machine().num_polls, 0);
}

TEST(Stage, AWaitIsOverWhenTheLanesFinishedAllTogether) {
  ControlWindow window({.num_ranks = 1});
  const primitives::OpContext<VirtualExec> op(window.params(0));
  VirtualExec::restart([&](int polls) {
    if (polls == 10) stage_complete(SoloGroup{}, op, Stage::kScanned, 3);
    if (polls == 20) stage_complete(SoloGroup{}, op, Stage::kScanned, 0);
    if (polls == 30) stage_complete(SoloGroup{}, op, Stage::kScanned, 4);
  });
  EXPECT_TRUE(stage_wait(SoloGroup{}, op, Stage::kScanned, 7));
  EXPECT_EQ(VirtualExec::machine().num_polls, 30);
}

TEST(Stage, WorkOfAnotherStageDoesNotCount) {
  ControlWindow window({.num_ranks = 1});
  window.set_timeout(1'000'000);
  VirtualExec::restart();
  const primitives::OpContext<VirtualExec> op(window.params(0));
  for (const Stage stage : {Stage::kCounted, Stage::kPrepared, Stage::kResolved, Stage::kLeft}) {
    stage_complete(SoloGroup{}, op, stage, 1);
  }
  EXPECT_FALSE(stage_wait(SoloGroup{}, op, Stage::kScanned, 1));
  EXPECT_EQ(window.fault(0).got, 0U);
}

TEST(Stage, SaysWhichOneWasNotReached) {
  const std::pair<Stage, WaitSite> sites[] = {
      {Stage::kCounted, WaitSite::kCounted},  {Stage::kTallied, WaitSite::kTallied},
      {Stage::kScanned, WaitSite::kScanned},  {Stage::kPrepared, WaitSite::kPrepared},
      {Stage::kIndexed, WaitSite::kIndexed},  {Stage::kGrouped, WaitSite::kGrouped},
      {Stage::kResolved, WaitSite::kResolved}};
  for (const auto& [stage, site] : sites) {
    ControlWindow window({.num_ranks = 1});
    window.set_timeout(1'000'000);
    VirtualExec::restart();
    const primitives::OpContext<VirtualExec> op(window.params(0));
    EXPECT_FALSE(stage_wait(SoloGroup{}, op, stage, 3));
    EXPECT_EQ(window.fault(0).site, static_cast<std::uint32_t>(site));
    EXPECT_EQ(window.fault(0).expected, 3U);
  }
}

/// Plain writes of several lanes, read behind the stage: ThreadSanitizer watches.
void publish_numbers(int num_lanes) {
  constexpr int kNumbersPerLane = 16;
  ControlWindow window({.num_ranks = 1});
  const primitives::OpContext<primitives::HostExec> op(window.params(0));
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(num_lanes) * kNumbersPerLane);
  std::vector<std::thread> lanes;
  lanes.reserve(static_cast<std::size_t>(num_lanes));
  for (int lane = 0; lane < num_lanes; ++lane) {
    lanes.emplace_back([&, lane] {
      for (int i = 0; i < kNumbersPerLane; ++i) {
        numbers[static_cast<std::size_t>(lane) * kNumbersPerLane + static_cast<std::size_t>(i)] = 1;
      }
      stage_complete(SoloGroup{}, op, Stage::kCounted, kNumbersPerLane);
    });
  }
  const auto total = static_cast<std::int64_t>(numbers.size());
  EXPECT_TRUE(stage_wait(SoloGroup{}, op, Stage::kCounted, total));
  std::int64_t sum = 0;
  for (const std::int64_t number : numbers) sum += number;
  EXPECT_EQ(sum, total);
  for (std::thread& lane : lanes) lane.join();
}

TEST(Stage, PublishesWhatTheLanesWrote) {
  for (int round = 0; round < scaled_rounds(50, 1'000); ++round) publish_numbers(1 + round % 4);
}

}  // namespace
}  // namespace ep::test
