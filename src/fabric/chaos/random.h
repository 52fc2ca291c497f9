// SPDX-License-Identifier: Apache-2.0
// The random numbers of chaos: the same on every machine, and one stream for every purpose, so that
// what happens to one peer does not change what happens to another.
#pragma once

#include <cstdint>

namespace ep::fabric {

/// What a stream of a (rank, context, peer) decides.
enum class ChaosPurpose : std::uint8_t { kPost, kArrival, kCompletion, kBusy, kTurn };

/// SplitMix64 (Steele, Lea, Flood 2014). Not for secrets.
class ChaosRandom {
 public:
  explicit constexpr ChaosRandom(std::uint64_t seed) : state_(mixed(seed + kGamma)) {}

  /// A stream of its own for each key; neither stream moves the other one.
  constexpr ChaosRandom split(std::uint64_t key) const {
    return ChaosRandom(state_ ^ mixed((key + 1) * kGamma));
  }

  constexpr std::uint64_t next() {
    state_ += kGamma;
    return mixed(state_);
  }

  /// 0 <= result < bound; 0 where bound < 1.
  constexpr int below(std::int64_t bound) {
    const std::uint64_t drawn = next();
    return bound < 1 ? 0 : static_cast<int>(drawn % static_cast<std::uint64_t>(bound));
  }

  /// True `permille` times in a thousand.
  constexpr bool chance(int permille) { return below(1000) < permille; }

 private:
  static constexpr std::uint64_t kGamma = 0x9e3779b97f4a7c15u;

  static constexpr std::uint64_t mixed(std::uint64_t bits) {
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
    return bits ^ (bits >> 31);
  }

  std::uint64_t state_;
};

constexpr ChaosRandom chaos_stream(
    std::uint64_t seed, int rank, int context, int peer, ChaosPurpose purpose) {
  return ChaosRandom(seed)
      .split(static_cast<std::uint64_t>(rank))
      .split(static_cast<std::uint64_t>(context))
      .split(static_cast<std::uint64_t>(peer))
      .split(static_cast<std::uint64_t>(purpose));
}

}  // namespace ep::fabric
