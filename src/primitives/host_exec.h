// SPDX-License-Identifier: Apache-2.0
// The host executor: a lane is one fiber, rows are copied by the core, peers are mapped memory.
#pragma once

#include "primitives/executor.h"
#include "primitives/memory.h"
#include "primitives/op_context.h"
#include "primitives/relax.h"
#include "primitives/row_math.h"
#include "primitives/row_pipe.h"
#include "primitives/row_reducer.h"

#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ep::primitives {

/// A stage is the source itself: the first store brings the row into the cache, further ones find
/// it there.
class HostBulk {
 public:
  static constexpr int kStages = 1;

  explicit HostBulk(RowStore store) : store_(store) {}

  void load(int /*stage*/, const RowParts& parts) { parts_ = parts; }
  void wait_loaded(int /*stage*/) const {}
  void store(std::byte* dst, int /*stage*/, StageSlice slice) {
    copy_row(dst, parts_.at(slice.offset), static_cast<std::size_t>(slice.bytes), store_);
  }
  void commit() const {}
  template <int kPending>
  void wait_read() const {}
  template <int kPending>
  void wait_landed() const {}
  void wait_all() const {}
  void fence() const {
    if (store_ == RowStore::kStream) stream_fence();  // rows before the release that follows
  }
  void fence_acquired() const {}

 private:
  RowStore store_;
  RowParts parts_;
};
static_assert(BulkEngine<HostBulk>);

/// Sums at once; nothing is in flight between calls.
class HostRowReducer {
 public:
  using Sum = RowSum;

  HostRowReducer(const SumSpec& spec, RowStore store) : spec_(spec), store_(store) {}

  Sum begin(SoloGroup /*group*/) const { return {}; }

  void load(SoloGroup /*group*/, const RowSum& /*sum*/) const {}
  void finish(SoloGroup /*group*/, const RowSum& sum) {
    const ReduceRow reduce{.terms = {sum.terms, static_cast<std::size_t>(sum.num_terms)},
                           .bias = sum.bias,
                           .dtype = spec_.dtype,
                           .num_elems = spec_.num_elems,
                           .weighted = spec_.weighted};
    reduce_row(sum.out, reduce, store_);
  }

  /// All finished sums precede the next release of this lane.
  void drain(SoloGroup /*group*/) const {
    if (store_ == RowStore::kStream) stream_fence();  // sums before the release that follows
  }
  void fence_acquired() const {}

 private:
  SumSpec spec_;
  RowStore store_;
};

struct HostExec {
  using Memory = HostMemory;
  using Group = SoloGroup;
  using RowPipe = primitives::RowPipe<HostBulk>;
  using RowReducer = HostRowReducer;

  static RowStore row_store(const OpParams& params) {
    return params.streams_rows ? RowStore::kStream : RowStore::kCached;
  }
  static RowPipe make_row_pipe(SoloGroup /*group*/, const Lane& /*lane*/, const OpParams& params) {
    return RowPipe(HostBulk(row_store(params)));
  }
  static RowReducer make_row_reducer(SoloGroup /*group*/,
                                     const Lane& /*lane*/,
                                     const OpParams& params,
                                     SumSpec spec) {
    return RowReducer(spec, row_store(params));
  }

  static std::byte* peer_segment(const void* table, std::int64_t index) {
    // Relaxed: a segment is announced only after its mapping was acknowledged over a socket.
    return static_cast<const std::atomic<std::byte*>*>(table)[index].load(
        std::memory_order_relaxed);
  }
  static bool is_gone(const void* flags, int peer) {
    // [sync:gone] acquire: everything the peer wrote before it left. Released in
    // fabric/host/arena_state.cc.
    return static_cast<const std::atomic<std::uint32_t>*>(flags)[peer].load(
               std::memory_order_acquire) != 0;
  }
  static std::uint64_t clock_ns() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  }
  static void relax(int polls) { primitives::relax(polls); }

  static void scale_row(SoloGroup /*group*/,
                        std::byte* dst,
                        const std::byte* src,
                        float weight,
                        const SumSpec& spec) {
    primitives::scale_row(dst, src, weight, spec.dtype, spec.num_elems, RowStore::kCached);
  }
  static float dot_rows(SoloGroup /*group*/,
                        const std::byte* a,
                        const std::byte* b,
                        const SumSpec& spec) {
    return primitives::dot_rows(a, b, spec.dtype, spec.num_elems);
  }
  static int popcount(std::uint32_t mask) { return std::popcount(mask); }
  static void or_scratch(std::uint32_t* word, std::uint32_t bit) { *word |= bit; }
  /// prefixes[i] = bits in masks[0, i). Returns the bits in all of them.
  static std::int32_t scan_masks(SoloGroup /*group*/,
                                 const std::uint32_t* masks,
                                 std::int32_t* prefixes,
                                 std::int64_t count) {
    std::int32_t sum = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      prefixes[i] = sum;
      sum += std::popcount(masks[i]);
    }
    return sum;
  }
  static void copy_bytes(SoloGroup /*group*/,
                         std::byte* dst,
                         const std::byte* src,
                         std::int64_t bytes) {
    std::memcpy(dst, src, static_cast<std::size_t>(bytes));
  }
  static void zero_bytes(SoloGroup /*group*/, std::byte* dst, std::int64_t bytes) {
    std::memset(dst, 0, static_cast<std::size_t>(bytes));
  }
};
static_assert(Executor<HostExec>);

}  // namespace ep::primitives
