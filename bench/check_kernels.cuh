// SPDX-License-Identifier: Apache-2.0
// Kernels that check results where they lie, a warp per row, and the one that makes a rank late.
#pragma once

#include "bench/check_tables.h"
#include "bench/gpu_kernels.cuh"

#include <cstdint>

namespace ep::bench {

inline constexpr int kCheckThreads = 256;
inline constexpr unsigned kFullWarp = 0xffffffffu;

struct WarpPlace {
  std::int64_t warp;
  std::int64_t num_warps;
  int lane;
};

EP_DEVICE inline WarpPlace warp_place() {
  const std::int64_t thread = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  return {thread / warpSize, std::int64_t{gridDim.x} * blockDim.x / warpSize,
          static_cast<int>(threadIdx.x % warpSize)};
}

/// One thread per wrong row. True for the first of all, which fills in the rest.
EP_DEVICE inline bool count_wrong(WrongRows* wrong) {
  static_assert(sizeof(unsigned long long) == sizeof(std::uint64_t));
  atomicAdd(reinterpret_cast<unsigned long long*>(&wrong->num_wrong), 1ULL);
  return atomicCAS(reinterpret_cast<unsigned long long*>(&wrong->is_claimed), 0ULL, 1ULL) == 0;
}

/// True in the one of the warp's finders that reports the row. All threads of the warp.
EP_DEVICE inline bool is_reporter(bool has_found, int lane) {
  const unsigned finders = __ballot_sync(kFullWarp, has_found);
  return has_found && __ffs(static_cast<int>(finders)) - 1 == lane;
}

static __global__ void check_received_kernel(const __grid_constant__ ReceivedTable table,
                                             WrongRows* wrong) {
  const WarpPlace place = warp_place();
  for (std::int64_t item = place.warp; item < table.num_items(); item += place.num_warps) {
    const std::int64_t unit = first_wrong_unit(table, item, place.lane, warpSize);
    if (is_reporter(unit != ReceivedTable::kRight, place.lane) && count_wrong(wrong))
      note_unit(table, item, unit, *wrong);
  }
}

static __global__ void check_output_kernel(const __grid_constant__ OutputTable table,
                                           WrongRows* wrong) {
  const WarpPlace place = warp_place();
  for (std::int64_t token = place.warp; token < table.num_rows; token += place.num_warps) {
    ElemVerdict verdict;
    verdict.is_right = true;
    std::int64_t elem = place.lane;
    for (; elem < table.hidden; elem += warpSize) {
      verdict = check_elem(table, token, elem);
      if (!verdict.is_right) break;
    }
    if (is_reporter(!verdict.is_right, place.lane) && count_wrong(wrong))
      note_elem(table, token, elem, verdict, *wrong);
  }
}

/// Ends after `ns`, at most kSpinLimitNs. One thread.
static __global__ void delay_kernel(std::uint64_t ns) {
  const std::uint64_t start = primitives::global_timer_ns();
  spin_until([&] { return primitives::global_timer_ns() - start >= ns; });
}

}  // namespace ep::bench
