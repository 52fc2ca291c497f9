// SPDX-License-Identifier: Apache-2.0
// Ordinary memory for rows: aligned, and touched when it is made.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>

namespace ep::bench {

class HostBuffer {
 public:
  HostBuffer() = default;
  /// Filled with kPoison. Throws std::bad_alloc.
  explicit HostBuffer(std::size_t bytes) : size_(bytes) {
    const std::size_t whole = (bytes / kAlignment + 1) * kAlignment;
    bytes_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, whole)));
    if (bytes_ == nullptr) throw std::bad_alloc();
    poison();
  }

  std::byte* get() const { return bytes_.get(); }
  std::size_t size() const { return size_; }
  void poison() const { std::memset(bytes_.get(), kPoison, size_); }

  template <class T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(bytes_.get()), size_ / sizeof(T)};
  }

  /// A byte whose repetition is a NaN in every floating-point type.
  static constexpr int kPoison = 0xff;

 private:
  static constexpr std::size_t kAlignment = 4096;
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };

  std::unique_ptr<std::byte, Free> bytes_;
  std::size_t size_ = 0;
};

}  // namespace ep::bench
