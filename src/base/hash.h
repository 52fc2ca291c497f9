// SPDX-License-Identifier: Apache-2.0
// FNV-1a: a small hash whose value is the same on every machine and in every version. Not for
// secrets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace ep::base {

inline constexpr std::uint32_t kFnv32Basis = 0x811c9dc5u;
inline constexpr std::uint64_t kFnv64Basis = 0xcbf29ce484222325u;

/// Chains: pass the previous value as `hash`.
constexpr std::uint32_t fnv1a_32(std::string_view text, std::uint32_t hash = kFnv32Basis) {
  constexpr std::uint32_t kPrime = 0x01000193u;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
  return hash;
}

constexpr std::uint64_t fnv1a_64(std::string_view text, std::uint64_t hash = kFnv64Basis) {
  constexpr std::uint64_t kPrime = 0x100000001b3u;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
  return hash;
}

constexpr std::uint32_t fnv1a_32(std::span<const std::byte> bytes,
                                 std::uint32_t hash = kFnv32Basis) {
  constexpr std::uint32_t kPrime = 0x01000193u;
  for (std::byte b : bytes) hash = (hash ^ static_cast<std::uint32_t>(b)) * kPrime;
  return hash;
}

constexpr std::uint64_t fnv1a_64(std::span<const std::byte> bytes,
                                 std::uint64_t hash = kFnv64Basis) {
  constexpr std::uint64_t kPrime = 0x100000001b3u;
  for (std::byte b : bytes) hash = (hash ^ static_cast<std::uint64_t>(b)) * kPrime;
  return hash;
}

/// The same for a 64-bit value, low byte first on every machine.
constexpr std::uint32_t fnv1a_32(std::uint64_t value, std::uint32_t hash) {
  constexpr std::uint32_t kPrime = 0x01000193u;
  for (int shift = 0; shift < 64; shift += 8) {
    hash = (hash ^ static_cast<std::uint32_t>((value >> shift) & 0xff)) * kPrime;
  }
  return hash;
}

}  // namespace ep::base
