// SPDX-License-Identifier: Apache-2.0
// A list of memory regions: size and offsets come from the same list, so they cannot disagree.
#pragma once

#include "base/macros.h"

#include <cstddef>
#include <cstdint>

namespace ep::layout {

/// One line of a GPU's L2 and two of a CPU's: words that different ranks write do not share one.
inline constexpr std::int64_t kLineBytes = 128;

EP_HOST_DEVICE constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

EP_HOST_DEVICE constexpr std::int64_t div_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit;
}

/// Appends regions one after another, each starting on a line.
class Regions {
 public:
  /// Offset of a region of `count` elements of type T.
  template <class T>
  EP_HOST_DEVICE constexpr std::int64_t add(std::int64_t count) {
    return add_bytes(count * static_cast<std::int64_t>(sizeof(T)));
  }

  EP_HOST_DEVICE constexpr std::int64_t add_bytes(std::int64_t bytes) {
    const std::int64_t offset = end_;
    end_ = round_up(end_ + bytes, kLineBytes);
    return offset;
  }

  EP_HOST_DEVICE constexpr std::int64_t total_bytes() const { return end_; }

 private:
  std::int64_t end_ = 0;
};

/// The T array at `offset` of a block.
template <class T>
EP_HOST_DEVICE T* array_at(std::byte* block, std::int64_t offset) {
  return static_cast<T*>(static_cast<void*>(block + offset));
}

template <class T>
EP_HOST_DEVICE const T* array_at(const std::byte* block, std::int64_t offset) {
  return static_cast<const T*>(static_cast<const void*>(block + offset));
}

template <class T>
EP_HOST_DEVICE std::byte* bytes_of(T* array) {
  return static_cast<std::byte*>(static_cast<void*>(array));
}

template <class T>
EP_HOST_DEVICE const std::byte* bytes_of(const T* array) {
  return static_cast<const std::byte*>(static_cast<const void*>(array));
}

}  // namespace ep::layout
