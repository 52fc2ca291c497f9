// SPDX-License-Identifier: Apache-2.0
// Deadlines: order, rounding and the ends of the range.
#include "base/deadline.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>

namespace ep::base {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

TEST(Deadline, ExpiresAfterItsDuration) {
  const std::int64_t before = now_ns();
  const Deadline deadline = Deadline::after(milliseconds(2));
  while (!deadline.expired()) {
  }
  EXPECT_GE(now_ns() - before, 2'000'000);
  EXPECT_EQ(deadline.remaining().count(), 0);
}

TEST(Deadline, OfANegativeDurationHasExpired) {
  EXPECT_TRUE(Deadline::after(milliseconds(-5)).expired());
  EXPECT_EQ(Deadline::after(milliseconds(-5)).remaining_ms(), 0);
}

TEST(Deadline, SaturatesInsteadOfOverflowing) {
  const Deadline forever = Deadline::after(milliseconds::max());
  EXPECT_FALSE(forever.expired());
  EXPECT_EQ(forever.at_ns(), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(forever.remaining_ms(), std::numeric_limits<int>::max());
  EXPECT_EQ(forever.plus(milliseconds(1000)).at_ns(), forever.at_ns());
  EXPECT_FALSE(Deadline::after(nanoseconds::max()).expired());
}

TEST(Deadline, RoundsTheRemainderUpToAMillisecond) {
  const Deadline deadline =
      Deadline::after(nanoseconds(std::chrono::seconds(100)) + nanoseconds(1));
  EXPECT_GT(deadline.remaining_ms(), 99'000);
  EXPECT_GE(nanoseconds(milliseconds(deadline.remaining_ms())), deadline.remaining());
}

TEST(Deadline, EarlierPicksTheEarlier) {
  const Deadline soon = Deadline::after(milliseconds(1));
  const Deadline late = Deadline::after(milliseconds(1000));
  EXPECT_EQ(Deadline::earlier(soon, late).at_ns(), soon.at_ns());
  EXPECT_EQ(Deadline::earlier(late, soon).at_ns(), soon.at_ns());
  EXPECT_EQ(soon.plus(milliseconds(3)).at_ns(), soon.at_ns() + 3'000'000);
}

}  // namespace
}  // namespace ep::base
