// SPDX-License-Identifier: Apache-2.0
// Runs a RapidCheck property inside a GoogleTest, with the number of cases that the test scale asks
// for.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdint>
#include <sstream>
#include <string>
#include <utility>

namespace ep::test {

/// The seed is fixed, so that what fails once fails everywhere. A failing case is shrunk and
/// printed.
template <class Testable>
void check_property(int num_cases, std::uint64_t seed, Testable&& property) {
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  rc::detail::TestMetadata metadata;
  metadata.id = std::string(info->test_suite_name()) + "/" + info->name();
  metadata.description = info->name();
  rc::detail::TestParams params;
  params.seed = seed;
  params.maxSuccess = num_cases;
  const auto result = rc::detail::checkTestable(std::forward<Testable>(property), metadata, params);
  if (result.template is<rc::detail::SuccessResult>()) return;
  std::ostringstream text;
  rc::detail::printResultMessage(result, text);
  ADD_FAILURE() << text.str();
}

}  // namespace ep::test
