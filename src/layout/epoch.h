// SPDX-License-Identifier: Apache-2.0
// Epochs, their tags and banks: how a word says which operation it belongs to.
#pragma once

#include "base/macros.h"

#include <cstdint>

namespace ep::layout {

/// Control words have two banks: a rank that is one operation ahead writes the other one. Two
/// suffice because an operation completes only after a word from every rank.
inline constexpr int kNumBanks = 2;

EP_HOST_DEVICE constexpr int bank_of(std::uint64_t epoch) {
  return static_cast<int>(epoch % kNumBanks);
}

/// 1 to 2^32 - 1: memory starts as zero, which is no operation's tag. Tags repeat after 2^32 - 1
/// operations; the words of a bank are at most kNumBanks operations old, so equal tags mean equal
/// epochs.
EP_HOST_DEVICE constexpr std::uint32_t tag_of(std::uint64_t epoch) {
  return static_cast<std::uint32_t>(epoch % 0xffffffffU) + 1;
}

/// | 63..32 tag | 31..0 value |
EP_HOST_DEVICE constexpr std::uint64_t tagged_word(std::uint32_t tag, std::uint32_t value) {
  return (static_cast<std::uint64_t>(tag) << 32) | value;
}

EP_HOST_DEVICE constexpr std::uint32_t tag_in(std::uint64_t word) {
  return static_cast<std::uint32_t>(word >> 32);
}

/// Value of a chunk's word: where its pairs begin among those of their source, and how many they
/// are. | 31..4 first | 3..0 count |
EP_HOST_DEVICE constexpr std::uint32_t chunk_value(std::int64_t first_pair, int num_pairs) {
  return (static_cast<std::uint32_t>(first_pair) << 4) | static_cast<std::uint32_t>(num_pairs);
}

EP_HOST_DEVICE constexpr std::int64_t first_pair_in(std::uint32_t chunk) { return chunk >> 4; }

EP_HOST_DEVICE constexpr int num_pairs_in(std::uint32_t chunk) {
  return static_cast<int>(chunk & 15U);
}

EP_HOST_DEVICE constexpr std::uint32_t value_in(std::uint64_t word) {
  return static_cast<std::uint32_t>(word);
}

}  // namespace ep::layout
