// SPDX-License-Identifier: Apache-2.0
// Which lines are printed and how.
#include "base/log.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace ep {
namespace {

class Log : public ::testing::Test {
 protected:
  ~Log() override { set_log_level(before_); }

  const LogLevel before_ = log_level();
};

TEST_F(Log, ParsesItsLevels) {
  EXPECT_EQ(parse_log_level("off"), LogLevel::kOff);
  EXPECT_EQ(parse_log_level("debug"), LogLevel::kDebug);
  EXPECT_FALSE(parse_log_level("WARN").has_value());
  EXPECT_FALSE(parse_log_level("").has_value());
}

TEST_F(Log, PrintsNothingBelowItsLevel) {
  set_log_level(LogLevel::kWarn);
  ::testing::internal::CaptureStderr();
  base::log(LogLevel::kInfo, "unseen");
  base::log(LogLevel::kWarn, "seen");
  base::log(LogLevel::kError, 3, "seen too");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "ep warn: seen\nep[3] error: seen too\n");
}

TEST_F(Log, IsSilentWhenOff) {
  set_log_level(LogLevel::kOff);
  ::testing::internal::CaptureStderr();
  base::log(LogLevel::kError, "unseen");
  base::log(LogLevel::kOff, "unseen");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST_F(Log, LinesOfSeveralThreadsDoNotMix) {
  constexpr int kNumThreads = 4;
  constexpr int kNumLines = 200;
  set_log_level(LogLevel::kInfo);
  ::testing::internal::CaptureStderr();
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kNumThreads; ++thread) {
      threads.emplace_back([thread] {
        for (int line = 0; line < kNumLines; ++line) {
          base::log(LogLevel::kInfo, thread, std::string(100, 'x'));
        }
      });
    }
  }
  const std::string text = ::testing::internal::GetCapturedStderr();
  const std::size_t line_bytes = std::string("ep[0] info: \n").size() + 100;
  ASSERT_EQ(text.size(), line_bytes * kNumThreads * kNumLines);
  for (std::size_t at = 0; at < text.size(); at += line_bytes) {
    ASSERT_EQ(text.compare(at, 3, "ep["), 0) << text.substr(at, line_bytes);
    ASSERT_EQ(text[at + line_bytes - 1], '\n');
  }
}

}  // namespace
}  // namespace ep
