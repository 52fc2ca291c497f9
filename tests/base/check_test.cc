// SPDX-License-Identifier: Apache-2.0
// A broken invariant ends the process with its condition and message.
#include "base/check.h"

#include <gtest/gtest.h>

#include <string>

namespace ep::base {
namespace {

TEST(CheckDeathTest, AbortsWithConditionAndMessage) {
  const int ticket = 7;
  EXPECT_DEATH(EP_CHECK(ticket < 5, "ticket " + std::to_string(ticket)),
               "check failed: ticket < 5: ticket 7");
  EXPECT_DEATH(EP_CHECK(ticket == 0), "check_test.cc.*check failed: ticket == 0");
}

TEST(CheckDeathTest, EvaluatesItsConditionOnce) {
  int num_evaluations = 0;
  EP_CHECK(++num_evaluations == 1, "unused");
  EXPECT_EQ(num_evaluations, 1);
}

}  // namespace
}  // namespace ep::base
