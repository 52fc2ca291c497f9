// SPDX-License-Identifier: Apache-2.0
// Monotonic time and the moment by which a wait must end.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>

namespace ep::base {

/// Nanoseconds of the monotonic clock.
inline std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class Deadline {
 public:
  /// Saturates: a duration that overflows the clock never expires, a negative one has expired.
  static Deadline after(std::chrono::nanoseconds duration) {
    const std::int64_t now = now_ns();
    const std::int64_t room = std::numeric_limits<std::int64_t>::max() - now;
    return Deadline(now + std::clamp<std::int64_t>(duration.count(), 0, room));
  }
  /// Milliseconds do not fit nanoseconds where a user gives "forever".
  static Deadline after(std::chrono::milliseconds duration) {
    constexpr std::chrono::milliseconds kMax =
        std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::nanoseconds::max());
    return after(std::chrono::nanoseconds(std::min(duration, kMax)));
  }

  /// Saturates, too.
  Deadline plus(std::chrono::milliseconds grace) const {
    const std::int64_t room = std::numeric_limits<std::int64_t>::max() - at_ns_;
    const std::chrono::nanoseconds grace_ns(grace);
    return Deadline(at_ns_ + std::clamp<std::int64_t>(grace_ns.count(), 0, room));
  }

  static Deadline earlier(Deadline a, Deadline b) { return a.at_ns_ < b.at_ns_ ? a : b; }

  bool expired() const { return now_ns() >= at_ns_; }
  /// Never negative.
  std::chrono::nanoseconds remaining() const {
    return std::chrono::nanoseconds(std::max<std::int64_t>(at_ns_ - now_ns(), 0));
  }
  /// For poll(): rounded up, so that a loop does not spin through the last millisecond.
  int remaining_ms() const {
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(remaining()).count();
    return static_cast<int>(std::min<std::int64_t>(ms, std::numeric_limits<int>::max()));
  }
  /// On the clock of now_ns().
  std::int64_t at_ns() const { return at_ns_; }
  std::chrono::steady_clock::time_point time_point() const {
    return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(at_ns_));
  }

 private:
  explicit Deadline(std::int64_t at_ns) : at_ns_(at_ns) {}
  std::int64_t at_ns_;
};

}  // namespace ep::base
