// SPDX-License-Identifier: Apache-2.0
// Ranks as streams of one process, spread over its GPUs: enough of an arena to launch the roles.
#pragma once

#include "intranode/cuda.h"
#include "layout/control.h"
#include "primitives/op_context.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace ep::test {

/// GPUs of this process that reach each other's memory, or one; 0: none.
int num_usable_gpus();

/// One rank: an arena of one segment, allocated from its front, and a stream.
class GpuRank {
 public:
  GpuRank(int device, std::int64_t control_bytes, std::int64_t arena_bytes);
  ~GpuRank();
  GpuRank(const GpuRank&) = delete;
  GpuRank& operator=(const GpuRank&) = delete;

  std::byte* arena() const { return arena_; }
  void* stream() const { return stream_; }
  void use_device() const;

  /// Poisoned memory of the arena, on a line of its own.
  std::byte* allocate(std::int64_t bytes);
  /// Frees all but the control region.
  void free_all() { end_ = control_bytes_; }
  layout::Location locate(const void* address) const;

  template <class T>
  T* upload(const std::vector<T>& values) {
    std::byte* copy = allocate(static_cast<std::int64_t>(values.size() * sizeof(T)));
    write(copy, std::as_bytes(std::span(values)));
    return layout::array_at<T>(copy, 0);
  }
  template <class T>
  std::vector<T> download(const void* address, std::int64_t count) const {
    std::vector<T> values(static_cast<std::size_t>(count));
    read(std::as_writable_bytes(std::span(values)), address);
    return values;
  }

  void wait() const;

 private:
  void write(std::byte* dst, std::span<const std::byte> bytes) const;
  void read(std::span<std::byte> bytes, const void* src) const;

  int device_;
  std::int64_t control_bytes_;
  std::int64_t arena_bytes_;
  std::int64_t end_;
  std::byte* arena_ = nullptr;
  void* stream_ = nullptr;
};

class GpuRanks {
 public:
  GpuRanks(const layout::ControlShape& shape, std::int64_t arena_bytes);
  ~GpuRanks();

  GpuRank& operator[](int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  int size() const { return static_cast<int>(ranks_.size()); }

  const intranode::LoadedKernels& kernels(int rank) const {
    return kernels_[static_cast<std::size_t>(rank)];
  }
  /// All but the announcement.
  primitives::OpParams op_params(int rank);
  layout::FaultRecord fault(int rank);
  layout::LocalState local_state(int rank);

 private:
  layout::ControlLayout layout_;
  std::vector<std::unique_ptr<GpuRank>> ranks_;
  std::vector<intranode::LoadedKernels> kernels_;
  std::vector<void*> tables_;
  void* gone_flags_ = nullptr;
};

}  // namespace ep::test
