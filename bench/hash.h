// SPDX-License-Identifier: Apache-2.0
// The fast hash that all data of the bench is made of: the same bits on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace ep::bench {

/// Odd, close to 2^64 divided by the golden ratio: the step of splitmix64.
inline constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15u;

/// The finaliser of splitmix64: a bijection that spreads every input bit.
constexpr std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

/// Chains a further number to a key.
constexpr std::uint64_t chain(std::uint64_t key, std::uint64_t value) {
  return mix(key * kGolden + value + 1);
}

/// Uniform in [0, 1), 24 bits: exact in fp32.
constexpr float unit_float(std::uint64_t hashed) {
  return static_cast<float>(hashed >> 40) * (1.0F / 16'777'216.0F);
}

/// Order-dependent hash of a byte sequence, several GB/s. Not for secrets.
class Fingerprint {
 public:
  void add(std::uint64_t word) {
    state_ = (state_ ^ word) * kGolden;
    state_ ^= state_ >> 32;
  }
  /// The length is part of the hash.
  void add(std::span<const std::byte> bytes) {
    std::size_t at = 0;
    for (; at + sizeof(std::uint64_t) <= bytes.size(); at += sizeof(std::uint64_t)) {
      add(load(bytes.subspan(at, sizeof(std::uint64_t))));
    }
    add(load(bytes.subspan(at)));
    add(bytes.size());
  }
  std::uint64_t value() const { return mix(state_); }

 private:
  static std::uint64_t load(std::span<const std::byte> bytes) {
    std::uint64_t word = 0;
    if (!bytes.empty()) std::memcpy(&word, bytes.data(), bytes.size());
    return word;
  }

  std::uint64_t state_ = kGolden;
};

}  // namespace ep::bench
