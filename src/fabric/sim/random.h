// SPDX-License-Identifier: Apache-2.0
// The only source of chance in a simulated run.
#pragma once

#include <cstdint>

namespace ep::fabric::sim {

/// SplitMix64: the same numbers on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }
  /// In [0, limit); limit > 0.
  std::uint64_t below(std::uint64_t limit) { return next() % limit; }
  /// True once in `odds` calls, on average.
  bool one_in(std::uint64_t odds) { return below(odds) == 0; }
  bool chance(int percent) { return below(100) < static_cast<std::uint64_t>(percent); }

 private:
  std::uint64_t state_;
};

}  // namespace ep::fabric::sim
