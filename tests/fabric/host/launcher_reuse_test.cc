// SPDX-License-Identifier: Apache-2.0
// A launch of a shape that was seen before allocates nothing.
#include "fabric/host/launcher.h"
#include "tests/fabric/host/counted_new.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace ep::test {
namespace {

using fabric::HostLauncher;

std::int64_t allocations_of(HostLauncher& launcher, const HostLauncher::Launch& launch) {
  const std::int64_t before = num_allocations();
  launcher.run(launch);
  return num_allocations() - before;
}

TEST(HostLauncherReuse, ALaunchOfAKnownShapeAllocatesNothing) {
  const std::vector<HostLauncher::Role> roles(5, [](const primitives::Lane&) {
    for (int polls = 1; polls < 5; ++polls) primitives::relax(polls);
  });
  for (const int num_channels : {1, 3}) {
    HostLauncher launcher;
    const HostLauncher::Launch launch{
        .num_channels = num_channels, .roles = roles, .scratch_bytes = 4'096};
    EXPECT_GT(allocations_of(launcher, launch), 0) << "the counter counts";
    EXPECT_EQ(allocations_of(launcher, launch), 0) << num_channels << " channels";
    EXPECT_EQ(allocations_of(launcher, launch), 0) << num_channels << " channels";
  }
}

}  // namespace
}  // namespace ep::test
