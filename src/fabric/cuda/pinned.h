// SPDX-License-Identifier: Apache-2.0
// Small blocks of host memory that every GPU of this process reads.
#pragma once

#include <ep/status.h>

#include <cstddef>
#include <utility>

namespace ep::fabric {

/// Move-only. The memory goes back to a list of this process, not to CUDA: freeing pinned memory
/// would wait for all work of the device.
class PinnedBlock {
 public:
  PinnedBlock() = default;
  /// Zeroed, and at least 16-byte aligned. Needs a current context. Errors: kOutOfMemory, kCuda.
  static Result<PinnedBlock> allocate(std::size_t bytes);

  PinnedBlock(PinnedBlock&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  PinnedBlock& operator=(PinnedBlock&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  PinnedBlock(const PinnedBlock&) = delete;
  PinnedBlock& operator=(const PinnedBlock&) = delete;
  ~PinnedBlock();

  std::byte* base() const { return base_; }

 private:
  PinnedBlock(std::byte* base, std::size_t bytes) : base_(base), bytes_(bytes) {}

  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace ep::fabric
