// SPDX-License-Identifier: Apache-2.0
// Every environment variable that the library and its tools read; env.cc is the only reader.
#pragma once

#include <ep/status.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ep::base {

enum class EnvVar : std::uint8_t {
  kLog,
  kTimeout,
  kNumSms,
  kLsaSize,
  kMasterAddr,
  kMasterPort,
  kCookie,
  kJobId,
  kNetProvider,
  kNetInterface,
  kRxmNumConnections,
  kTestScale,
  kTestSeed,
  kTestBackend,
  kTestLsaSize,
  kTorchRank,
  kTorchWorldSize,
  kTorchLocalWorldSize,
  kTorchMasterAddr,
  kTorchMasterPort,
  kTorchRunId,
  kTorchRestartCount,
  kOmpiRank,
  kOmpiSize,
  kOmpiLocalSize,
  kPmixNamespace,
  kSlurmProcId,
  kSlurmNumTasks,
  kSlurmNumNodes,
  kSlurmJobId,
  kSlurmStepId,
};

struct EnvSpec {
  EnvVar var;
  std::string_view name;
  std::string_view meaning;
};

/// In the order of EnvVar.
std::span<const EnvSpec> env_table();
std::string_view name_of(EnvVar var);

/// How a variable is looked up: the process environment, or a test's.
using EnvLookup = std::function<std::optional<std::string>(EnvVar)>;

/// The value; empty if unset or "".
std::optional<std::string> env_text(EnvVar var);

struct IntRange {
  std::int64_t min;
  std::int64_t max;
};

/// Errors: kInvalidArgument with `name`, the text and the range, unless all of `text` is a decimal
/// number in the range.
Result<std::int64_t> parse_int(std::string_view name, std::string_view text, IntRange range);
/// Seconds, above 0 and at most kMaxSeconds; a fraction is allowed; rounded up to a millisecond.
/// Errors as parse_int.
Result<std::chrono::milliseconds> parse_seconds(std::string_view name, std::string_view text);
inline constexpr std::int64_t kMaxSeconds = 1'000'000;

/// parse_int of the variable; empty if unset.
Result<std::optional<std::int64_t>> env_int(EnvVar var,
                                            IntRange range,
                                            const EnvLookup& lookup = env_text);
/// parse_seconds of the variable; empty if unset.
Result<std::optional<std::chrono::milliseconds>> env_seconds(EnvVar var,
                                                             const EnvLookup& lookup = env_text);

/// EP_TEST_SCALE: the factor by which rounds of tests are multiplied; 1 if unset or malformed.
double env_test_scale();

}  // namespace ep::base
