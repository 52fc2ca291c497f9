// SPDX-License-Identifier: Apache-2.0
// Kernels that stand around what is measured: the gate that holds a stream, and the L2 flush.
#pragma once

#include "base/macros.h"
#include "primitives/memory.cuh"
#include "primitives/ptx.cuh"

#include <cstddef>
#include <cstdint>

namespace ep::bench {

/// Longer than any rank needs to queue an operation; every spinning kernel ends by then.
inline constexpr std::uint64_t kSpinLimitNs = 2'000'000'000;

/// More than any L2 holds.
inline constexpr std::size_t kFlushBytes = std::size_t{160} << 20;
inline constexpr int kFlushThreads = 512;

/// Polls until `is_done()`; false if that took longer than kSpinLimitNs.
template <class Done>
EP_DEVICE bool spin_until(Done is_done) {
  constexpr int kPollsPerLook = 64;
  const std::uint64_t start = primitives::global_timer_ns();
  while (true) {
    for (int poll = 0; poll < kPollsPerLook; ++poll) {
      if (is_done()) return true;
    }
    if (primitives::global_timer_ns() - start > kSpinLimitNs) return false;
  }
}

/// Words of mapped host memory.
struct GateWords {
  std::uint32_t opened = 0;   ///< round that the host has opened
  std::uint32_t expired = 0;  ///< round whose gate gave up
};

/// Holds the stream until the host opens `round`. One thread.
static __global__ void gate_kernel(GateWords* words, std::uint32_t round) {
  using Memory = primitives::CudaMemory;
  const auto is_open = [&] {
    return static_cast<std::int32_t>(Memory::load_relaxed_sys(&words->opened) - round) >= 0;
  };
  if (!spin_until(is_open)) Memory::store_relaxed_sys(&words->expired, round);
}

/// Reads all of `bytes`, so that nothing else stays in L2. `sink` is never written: no sum is that.
static __global__ void flush_kernel(const uint4* words,
                                    std::size_t num_words,
                                    std::uint32_t* sink) {
  std::uint32_t sum = 0;
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t at = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; at < num_words;
       at += stride) {
    sum |= words[at].x;
  }
  // The buffer is all zeros.
  if (sum != 0) *sink = sum;
}

}  // namespace ep::bench
