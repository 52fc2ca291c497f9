// SPDX-License-Identifier: Apache-2.0
// The CUDA executor: a lane is one warp, rows go through the bulk copy unit, peers are mapped
// memory of other GPUs.
#pragma once

#include "base/macros.h"
#include "primitives/bulk_tma.cuh"
#include "primitives/bulk_vector.cuh"
#include "primitives/coop.cuh"
#include "primitives/executor.h"
#include "primitives/memory.cuh"
#include "primitives/op_context.h"
#include "primitives/ptx.cuh"
#include "primitives/row_dot.cuh"
#include "primitives/row_pipe.h"
#include "primitives/row_reducer.cuh"
#include "primitives/row_reducer_bulk.cuh"

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace ep::primitives {

/// Where rows pass through shared memory: kStages of a lane's row pipe, kRingBytes of its reducer,
/// for sums of kShape.
template <int kStages, int kRingBytes = min_ring_bytes(kMaxTopk), SumShape kShape = SumShape::kAny>
struct CudaExec {
  using Memory = CudaMemory;
  using Group = WarpGroup;
  using Bulk = std::conditional_t<kHasTma, TmaBulk<kStages>, VectorBulk>;
  using RowPipe = primitives::RowPipe<Bulk>;
  using RowReducer =
      std::conditional_t<kHasTma, BulkRowReducer<kRingBytes, kShape>, WarpRowReducer<kShape>>;

  EP_DEVICE static RowPipe make_row_pipe(WarpGroup group,
                                         const Lane& lane,
                                         const OpParams& /*params*/) {
    return RowPipe(Bulk(group, lane.stages, lane.stage_bytes));
  }
  EP_DEVICE static RowReducer make_row_reducer(WarpGroup group,
                                               const Lane& lane,
                                               const OpParams& /*params*/,
                                               const SumSpec& spec) {
    return RowReducer(group, lane.stages, spec);
  }

  /// `table`: std::byte* [num_ranks][kMaxSegments] in memory of this GPU.
  EP_DEVICE static std::byte* peer_segment(const void* table, std::int64_t index) {
    // Plain: an entry is written before its segment is announced, and the announcement was acquired
    // before this.
    return CudaMemory::load(static_cast<std::byte* const*>(table) + index);
  }
  /// `flags`: std::uint32_t [num_ranks] in mapped memory of the host.
  EP_DEVICE static bool is_gone(const void* flags, int peer) {
    // [sync:gone] acquire: everything the peer wrote before it left. Released by the host that lost
    // it.
    return CudaMemory::load_acquire_sys(static_cast<const std::uint32_t*>(flags) + peer) != 0;
  }
  EP_DEVICE static std::uint64_t clock_ns() { return global_timer_ns(); }

  /// Many warps poll the same word: loads that queue up there delay the store that ends the wait.
  EP_DEVICE static void relax(int polls) {
    constexpr int kShortNaps = 256;
    constexpr unsigned kShortNapNs = 40;
    constexpr unsigned kLongNapNs = 500;
    __nanosleep(polls > kShortNaps ? kLongNapNs : kShortNapNs);
  }

  EP_DEVICE static void scale_row(
      WarpGroup group, std::byte* dst, const std::byte* src, float weight, const SumSpec& spec) {
    primitives::scale_row(group, dst, src, weight, spec);
  }
  EP_DEVICE static float dot_rows(WarpGroup group,
                                  const std::byte* a,
                                  const std::byte* b,
                                  const SumSpec& spec) {
    return primitives::dot_rows(group, a, b, spec);
  }
  EP_DEVICE static int popcount(std::uint32_t mask) { return __popc(mask); }
  /// The scratch of a lane is shared memory.
  EP_DEVICE static void or_scratch(std::uint32_t* word, std::uint32_t bit) { or_shared(word, bit); }

  /// prefixes[i] = bits in masks[0, i). Returns the bits in all of them.
  EP_DEVICE static std::int32_t scan_masks(WarpGroup group,
                                           const std::uint32_t* masks,
                                           std::int32_t* prefixes,
                                           std::int64_t count) {
    constexpr int kInFlight = 4;
    std::int32_t before = 0;
    for (std::int64_t first = group.thread_rank(); first - group.thread_rank() < count;
         first += kInFlight * kWarpThreads) {
      std::int32_t bits[kInFlight];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        const std::int64_t at = first + i * kWarpThreads;
        bits[i] = at < count ? __popc(masks[at]) : 0;
      }
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        const std::int64_t at = first + i * kWarpThreads;
        const std::int32_t through = before + group.inclusive_sum(bits[i]);
        if (at < count) prefixes[at] = through - bits[i];
        before = group.shuffle(through, kWarpThreads - 1);
      }
    }
    return before;
  }

  /// Any size and alignment; both multiples of 16, or of 4, are fast.
  EP_DEVICE static void copy_bytes(WarpGroup group,
                                   std::byte* dst,
                                   const std::byte* src,
                                   std::int64_t bytes) {
    const std::uint64_t unit = alignment_of(dst, bytes) | alignment_of(src, bytes);
    if (unit % sizeof(Vector) == 0) {
      copy_units<Vector>(group, dst, src, bytes);
    } else if (unit % sizeof(std::uint32_t) == 0) {
      copy_units<std::uint32_t>(group, dst, src, bytes);
    } else {
      copy_units<std::byte>(group, dst, src, bytes);
    }
  }
  EP_DEVICE static void zero_bytes(WarpGroup group, std::byte* dst, std::int64_t bytes) {
    const std::uint64_t unit = alignment_of(dst, bytes);
    if (unit % sizeof(Vector) == 0) {
      zero_units<Vector>(group, dst, bytes);
    } else if (unit % sizeof(std::uint32_t) == 0) {
      zero_units<std::uint32_t>(group, dst, bytes);
    } else {
      zero_units<std::byte>(group, dst, bytes);
    }
  }

 private:
  /// A number that 2^n divides exactly if it divides both the address and the size.
  EP_DEVICE static std::uint64_t alignment_of(const std::byte* address, std::int64_t bytes) {
    return reinterpret_cast<std::uintptr_t>(address) | static_cast<std::uint64_t>(bytes);
  }
  template <class Unit>
  EP_DEVICE static void copy_units(WarpGroup group,
                                   std::byte* dst,
                                   const std::byte* src,
                                   std::int64_t bytes) {
    constexpr int kInFlight = sizeof(Unit) == sizeof(Vector) ? 4 : 1;
    const std::int64_t count = bytes / static_cast<std::int64_t>(sizeof(Unit));
    EP_NO_UNROLL
    for (std::int64_t first = group.thread_rank(); first < count;
         first += kInFlight * kWarpThreads) {
      Unit units[kInFlight];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        const std::int64_t at = first + i * kWarpThreads;
        if (at < count) units[i] = layout::array_at<Unit>(src, 0)[at];
      }
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        const std::int64_t at = first + i * kWarpThreads;
        if (at < count) layout::array_at<Unit>(dst, 0)[at] = units[i];
      }
    }
  }
  template <class Unit>
  EP_DEVICE static void zero_units(WarpGroup group, std::byte* dst, std::int64_t bytes) {
    for_each_strided(group, bytes / static_cast<std::int64_t>(sizeof(Unit)),
                     [&](std::int64_t i) { layout::array_at<Unit>(dst, 0)[i] = Unit{}; });
  }
};
static_assert(Executor<CudaExec<2>>);

}  // namespace ep::primitives
