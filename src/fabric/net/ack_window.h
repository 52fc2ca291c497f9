// SPDX-License-Identifier: Apache-2.0
// Numbers that a sender gives out and a receiver acknowledges, cumulative and 64 bits wide; they
// wrap, so only differences are compared.
#pragma once

#include <cstdint>

namespace ep::fabric {

enum class AckVerdict : std::uint8_t {
  kFine,    ///< says something new, or what was known
  kOld,     ///< was overtaken by a later one
  kForged,  ///< acknowledges what was never sent
};

/// The sender's side: at most `limit` numbers are open.
class AckWindow {
 public:
  AckWindow() = default;
  AckWindow(std::uint64_t first, std::uint64_t limit)
      : next_(first), acked_(first), limit_(limit) {}

  /// The number that take() gives out.
  std::uint64_t next() const { return next_; }
  std::uint64_t acked() const { return acked_; }
  std::uint64_t num_open() const { return next_ - acked_; }
  bool has_room() const { return num_open() < limit_; }
  std::uint64_t take() { return next_++; }

  AckVerdict judge(std::uint64_t cursor) const {
    const std::uint64_t advance = cursor - acked_;
    if (advance <= num_open()) return AckVerdict::kFine;
    // A cursor is behind by no more than the acknowledgements that overtook it: far below 2^63.
    return static_cast<std::int64_t>(advance) < 0 ? AckVerdict::kOld : AckVerdict::kForged;
  }
  /// All numbers below `cursor` are settled. Without effect unless judge() finds it fine.
  AckVerdict acknowledge(std::uint64_t cursor) {
    const AckVerdict verdict = judge(cursor);
    if (verdict == AckVerdict::kFine) acked_ = cursor;
    return verdict;
  }
  /// Whether all numbers below `number` are settled; `number` was given out.
  bool has_settled(std::uint64_t number) const {
    return static_cast<std::int64_t>(acked_ - number) >= 0;
  }

 private:
  std::uint64_t next_ = 0;
  std::uint64_t acked_ = 0;
  std::uint64_t limit_ = 0;
};

/// The number whose low bits arrived, if it is one of the `count` that begin with `from`;
/// `modulus` is a power of two above `count`. False for a number that is not open.
struct WideNumber {
  std::uint64_t number = 0;
  bool is_open = false;
};
constexpr WideNumber widen(std::uint64_t low_bits,
                           std::uint64_t modulus,
                           std::uint64_t from,
                           std::uint64_t count) {
  const std::uint64_t distance = (low_bits - from) & (modulus - 1);
  return {from + distance, distance < count};
}

}  // namespace ep::fabric
