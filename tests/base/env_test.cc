// SPDX-License-Identifier: Apache-2.0
// The table of variables and the parsing of their values.
#include "base/env.h"

#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <random>
#include <set>
#include <string>

namespace ep::base {
namespace {

using std::chrono::milliseconds;

EnvLookup lookup_of(std::string value) {
  return [value](EnvVar) { return std::optional<std::string>(value); };
}

TEST(Env, EveryVariableHasANameAndAMeaning) {
  std::set<std::string_view> names;
  for (const EnvSpec& spec : env_table()) {
    EXPECT_FALSE(spec.meaning.empty()) << spec.name;
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name << " twice";
    EXPECT_EQ(name_of(spec.var), spec.name);
  }
}

TEST(Env, AnEmptyValueIsUnset) {
  ASSERT_EQ(::setenv("EP_JOB_ID", "", 1), 0);
  EXPECT_FALSE(env_text(EnvVar::kJobId).has_value());
  ASSERT_EQ(::setenv("EP_JOB_ID", "7", 1), 0);
  EXPECT_EQ(env_text(EnvVar::kJobId), "7");
  ASSERT_EQ(::unsetenv("EP_JOB_ID"), 0);
  EXPECT_FALSE(env_text(EnvVar::kJobId).has_value());
}

TEST(Env, ParsesWholeNumbersInTheirRange) {
  EXPECT_EQ(*parse_int("RANK", "0", {0, 7}), 0);
  EXPECT_EQ(*parse_int("RANK", "7", {0, 7}), 7);
  EXPECT_EQ(*parse_int("RANK", "-3", {-3, 7}), -3);
}

TEST(Env, RefusesEverythingElseWithNameAndValue) {
  for (const char* text : {"", " 1", "1 ", "+1", "1.0", "0x1", "one", "8", "-1", "1e2",
                           "99999999999999999999", "1\n"}) {
    const Result<std::int64_t> value = parse_int("RANK", text, {0, 7});
    ASSERT_FALSE(value.ok()) << text;
    EXPECT_EQ(value.status().code(), Errc::kInvalidArgument);
    EXPECT_NE(value.status().message().find("RANK = '"), std::string::npos);
    EXPECT_NE(value.status().message().find("from 0 to 7"), std::string::npos);
  }
  EXPECT_NE(parse_int("RANK", "12a", {0, 7}).status().message().find("12a"), std::string::npos);
}

TEST(Env, MessagesShowNoControlCharactersAndNoFloods) {
  const std::string hostile = "\033[2J" + std::string(100'000, 'x');
  const std::string message = parse_int("RANK", hostile, {0, 7}).status().message();
  EXPECT_LT(message.size(), 200u);
  EXPECT_EQ(message.find('\033'), std::string::npos);
}

TEST(Env, ParsesSeconds) {
  EXPECT_EQ(*parse_seconds("EP_TIMEOUT", "10"), milliseconds(10'000));
  EXPECT_EQ(*parse_seconds("EP_TIMEOUT", "0.25"), milliseconds(250));
  EXPECT_EQ(*parse_seconds("EP_TIMEOUT", "0.0001"), milliseconds(1)) << "rounded up, never to 0";
  for (const char* text : {"0", "-1", "nan", "inf", "", "10s", "1000001", "1e300"}) {
    EXPECT_FALSE(parse_seconds("EP_TIMEOUT", text).ok()) << text;
  }
}

TEST(Env, AnUnsetVariableIsNoError) {
  const EnvLookup nothing = [](EnvVar) { return std::optional<std::string>(); };
  EXPECT_FALSE(env_int(EnvVar::kNumSms, {1, 4}, nothing)->has_value());
  EXPECT_FALSE(env_seconds(EnvVar::kTimeout, nothing)->has_value());
  EXPECT_EQ(**env_int(EnvVar::kNumSms, {1, 4}, lookup_of("3")), 3);
  EXPECT_FALSE(env_int(EnvVar::kNumSms, {1, 4}, lookup_of("5")).ok());
}

TEST(Env, RandomTextsParseToNothingOutsideTheRange) {
  std::mt19937_64 random(2);
  const std::string alphabet = "0123456789-+.eExinfa \n\xff";
  const int rounds = test::scaled_rounds(20'000, 500'000);
  int num_accepted = 0;
  for (int round = 0; round < rounds; ++round) {
    std::string text;
    for (std::size_t size = random() % 24; size > 0; --size) {
      text.push_back(alphabet[random() % alphabet.size()]);
    }
    const Result<std::int64_t> number = parse_int("X", text, {-50, 1000});
    if (number.ok()) {
      ++num_accepted;
      ASSERT_TRUE(*number >= -50 && *number <= 1000) << text;
    }
    const Result<milliseconds> seconds = parse_seconds("X", text);
    if (seconds.ok()) {
      ASSERT_TRUE(seconds->count() >= 1 && seconds->count() <= kMaxSeconds * 1000) << text;
    }
  }
  EXPECT_GT(num_accepted, 0) << "the alphabet must reach the accepting path";
}

}  // namespace
}  // namespace ep::base
