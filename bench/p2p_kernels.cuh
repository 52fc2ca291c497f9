// SPDX-License-Identifier: Apache-2.0
// Kernels of the p2p subcommand: rows through the bulk copy unit, flags there and back.
#pragma once

#include "bench/gpu_kernels.cuh"
#include "bench/p2p.h"
#include "primitives/bulk_tma.cuh"
#include "primitives/coop.cuh"
#include "primitives/cuda_exec.cuh"
#include "primitives/memory.cuh"
#include "primitives/row_pipe.h"
#include "primitives/ticket.h"

#include <cstddef>
#include <cstdint>

namespace ep::bench {

/// Two warps of six stages drive the outgoing port of an SM to its limit.
inline constexpr int kLinkPumps = 2;
inline constexpr int kLinkStages = 6;
inline constexpr int kLinkThreads = kLinkPumps * primitives::kWarpThreads;
using LinkExec = primitives::CudaExec<kLinkStages>;
using LinkBulk = primitives::TmaBulk<kLinkStages>;

inline constexpr std::int64_t kLinkPumpBytes = LinkBulk::shared_bytes(kLinkRowBytes);
inline constexpr std::int64_t kLinkSharedBytes = kLinkPumps * kLinkPumpBytes;

inline constexpr int kLinkRowBits = 15;
inline constexpr std::int64_t kLinkRows = std::int64_t{1} << kLinkRowBits;
inline constexpr std::int64_t kLinkBytes = kLinkRows * kLinkRowBytes;
inline constexpr std::int64_t kLinkWords = kLinkBytes / std::int64_t{sizeof(std::uint64_t)};

/// A permutation of [0, kLinkRows) without a table: odd factors and xor-shifts are bijections.
EP_DEVICE inline std::int64_t scattered_row(std::int64_t ticket) {
  constexpr std::uint32_t kMask = (1U << kLinkRowBits) - 1;
  constexpr std::uint32_t kFactors[] = {0x5D2BU, 0x3A6DU};
  constexpr int kShift = 7;
  auto row = static_cast<std::uint32_t>(ticket);
  for (std::uint32_t factor : kFactors) {
    row = (row * factor + 1) & kMask;
    row ^= row >> kShift;
  }
  return static_cast<std::int64_t>(row);
}

EP_DEVICE inline void pump_rows(std::byte* shared,
                                std::byte* dst,
                                const std::byte* src,
                                std::uint64_t* tickets) {
  const auto group = primitives::WarpGroup::this_warp();
  primitives::RowPipe<LinkBulk> pipe(LinkBulk(group, shared, kLinkRowBytes));
  primitives::TicketStream<LinkExec> stream(group, tickets, kLinkRows);
  std::int64_t ticket = stream.next(group);
  while (true) {
    while (ticket >= 0 && !pipe.is_full()) {
      const std::int64_t row = scattered_row(ticket);
      pipe.load(row, {src + row * kLinkRowBytes, kLinkRowBytes});
      ticket = stream.next(group);
    }
    if (pipe.is_empty()) break;
    const std::int64_t row = pipe.wait_front();
    pipe.store(dst + row * kLinkRowBytes, {0, kLinkRowBytes});
    pipe.retire();
  }
}

/// Copies all rows. It waits for nobody: bulk copies land or fault.
static __global__ void __launch_bounds__(kLinkThreads, 1)
    copy_rows_kernel(std::byte* dst, const std::byte* src, std::uint64_t* tickets) {
  extern __shared__ __align__(128) std::byte link_shared[];
  const int pump = static_cast<int>(threadIdx.x) / primitives::kWarpThreads;
  pump_rows(link_shared + pump * kLinkPumpBytes, dst, src, tickets);
}

EP_DEVICE inline std::uint64_t random_word(std::uint64_t at) {
  std::uint64_t word = (at + 1) * 0x9E3779B97F4A7C15U;
  word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9U;
  return word ^ (word >> 27);
}

static __global__ void fill_random_kernel(std::uint64_t* words, std::int64_t num_words) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t at = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; at < num_words;
       at += stride) {
    words[at] = random_word(static_cast<std::uint64_t>(at));
  }
}

/// Adds the words that fill_random_kernel would not have left.
static __global__ void count_wrong_kernel(const std::uint64_t* words,
                                          std::int64_t num_words,
                                          unsigned long long* num_wrong) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  unsigned long long wrong = 0;
  for (std::int64_t at = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; at < num_words;
       at += stride) {
    wrong += words[at] != random_word(static_cast<std::uint64_t>(at)) ? 1 : 0;
  }
  if (wrong > 0) atomicAdd(num_wrong, wrong);
}

/// Words of the two GPUs that bounce a number.
struct FlagPair {
  std::uint32_t* mine = nullptr;
  std::uint32_t* theirs = nullptr;
  std::uint32_t* expired = nullptr;  ///< of this GPU
  bool is_first = false;
};

template <bool kIsOrdered>
EP_DEVICE void send_flag(std::uint32_t* word, std::uint32_t value) {
  if constexpr (kIsOrdered) {
    primitives::CudaMemory::store_release_sys(word, value);
  } else {
    primitives::CudaMemory::store_relaxed_sys(word, value);
  }
}

template <bool kIsOrdered>
EP_DEVICE bool await_flag(const std::uint32_t* word, std::uint32_t value) {
  return spin_until([&] {
    if constexpr (kIsOrdered) return primitives::CudaMemory::load_acquire_sys(word) == value;
    return primitives::CudaMemory::load_relaxed_sys(word) == value;
  });
}

/// One thread on each GPU.
template <bool kIsOrdered>
__global__ void bounce_kernel(FlagPair flags, std::uint32_t num_rounds) {
  for (std::uint32_t round = 1; round <= num_rounds; ++round) {
    if (flags.is_first) send_flag<kIsOrdered>(flags.theirs, round);
    if (!await_flag<kIsOrdered>(flags.mine, round)) {
      *flags.expired = round;
      return;
    }
    if (!flags.is_first) send_flag<kIsOrdered>(flags.theirs, round);
  }
}

}  // namespace ep::bench
