// SPDX-License-Identifier: Apache-2.0
// How many rounds a test runs: few by default, the full number in a soak; and how patient it is
// under a sanitizer.
#pragma once

#include "base/env.h"

#include <algorithm>

namespace ep::test {

#if defined(__SANITIZE_THREAD__)
inline constexpr int kSanitizerSlowdown = 8;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr int kSanitizerSlowdown = 3;
#else
inline constexpr int kSanitizerSlowdown = 1;
#endif

/// EP_TEST_SCALE=full: every test runs its full rounds.
inline bool is_full_scale() { return base::env_text(base::EnvVar::kTestScale) == "full"; }

/// `full` rounds in a soak, else `small` times EP_TEST_SCALE, fewer under a sanitizer; at least
/// one, at most `full`.
inline int scaled_rounds(int small, int full) {
  if (is_full_scale()) return full;
  return std::clamp(static_cast<int>(small * base::env_test_scale() / kSanitizerSlowdown), 1, full);
}

}  // namespace ep::test
