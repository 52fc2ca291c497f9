// SPDX-License-Identifier: Apache-2.0
// The seeds that a randomised test runs, and the command that repeats one of them.
#pragma once

#include "base/env.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ep::test {

/// 1 to `count`; where EP_TEST_SEED is set, that one alone.
inline std::vector<std::uint64_t> seeds(int count) {
  constexpr base::IntRange kAnySeed{.min = 0, .max = INT64_MAX};
  const auto chosen = base::env_int(base::EnvVar::kTestSeed, kAnySeed);
  if (chosen.ok() && *chosen) return {static_cast<std::uint64_t>(**chosen)};
  std::vector<std::uint64_t> all;
  for (int seed = 1; seed <= count; ++seed) all.push_back(static_cast<std::uint64_t>(seed));
  return all;
}

/// For the message of a failure.
inline std::string replay_command(std::uint64_t seed) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  return "replay: EP_TEST_SEED=" + std::to_string(seed) + " " +
         ::testing::internal::GetArgvs().front() + " --gtest_filter=" + test->test_suite_name() +
         "." + test->name();
}

}  // namespace ep::test
