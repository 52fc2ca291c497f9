// SPDX-License-Identifier: Apache-2.0
// Sums of rows whose terms pass through shared memory: bulk loads keep more bytes in flight than
// registers could.
#pragma once

#include "base/macros.h"
#include "layout/regions.h"
#include "primitives/coop.cuh"
#include "primitives/ptx.cuh"
#include "primitives/row_reducer.cuh"

#include <cstddef>
#include <cstdint>

namespace ep::primitives {

/// A warp's ring of slots, each for a part of a term. Loads run ahead of the sums, across the end
/// of one sum into the next.
template <int kNumSlots>
class TermRing {
 public:
  static constexpr std::int64_t kSlotBytes =
      RawPart::kVectors * static_cast<std::int64_t>(sizeof(Vector));

  /// A line of barriers, then the slots.
  EP_HOST_DEVICE static constexpr std::int64_t shared_bytes() {
    return layout::kLineBytes + kNumSlots * kSlotBytes;
  }

  EP_DEVICE TermRing(WarpGroup group, std::byte* shared, std::int64_t row_bytes)
      : group_(group), shared_(shared), row_bytes_(row_bytes) {
    if (group_.is_leader()) {
      for (int slot = 0; slot < kNumSlots; ++slot) mbarrier_init(barrier(slot));
      fence_mbarrier_init();  // [sync:stage-barrier] release: barriers are set up
    }
    group_.sync();
  }

  /// The terms of the sum follow those appended before. Precondition: at most one earlier sum has
  /// terms that were not taken.
  EP_DEVICE void append(const WarpRowSum& sum) {
    next_row_ = sum.row;
    next_terms_ = sum.num_terms;
    fill();
  }

  /// Also where a lane gave up: no load is under way when the memory of the slots goes.
  EP_DEVICE ~TermRing() {
    for (; num_loaded_ > 0; --num_loaded_, front_ = next(front_))
      mbarrier_wait(barrier(front_), (parities_ >> front_) & 1U);
  }
  TermRing(const TermRing&) = delete;
  TermRing& operator=(const TermRing&) = delete;

  /// As RowLoads::take.
  template <class Visit>
  EP_DEVICE void take(int /*term*/, std::int64_t first, std::int64_t end, Visit visit) {
    // [sync:stage-barrier] acquire: the slot holds the part
    mbarrier_wait(barrier(front_), (parities_ >> front_) & 1U);
    const std::byte* slot = address(front_);
#pragma unroll
    for (int i = 0; i < RawPart::kInFlight; ++i) {
      const int at = group_.thread_rank() + i * kWarpThreads;
      visit(i, first + i * kWarpThreads < end ? layout::array_at<Vector>(slot, 0)[at] : Vector{});
    }
    parities_ ^= 1U << front_;
    front_ = next(front_);
    --num_loaded_;
    group_.sync();  // all threads have read the slot: it may be loaded again
    fill();
  }

 private:
  static_assert(kNumSlots * static_cast<int>(sizeof(std::uint64_t)) <= layout::kLineBytes);

  EP_DEVICE static int next(int slot) { return slot + 1 == kNumSlots ? 0 : slot + 1; }
  EP_DEVICE std::uint64_t* barrier(int slot) const {
    return layout::array_at<std::uint64_t>(shared_, 0) + slot;
  }
  EP_DEVICE std::byte* address(int slot) const {
    return shared_ + layout::kLineBytes + slot * kSlotBytes;
  }

  EP_DEVICE void fill() {
    while (num_loaded_ < kNumSlots && has_part()) load_part();
  }

  /// True if a term is left to load; goes on to the next sum where one ended.
  EP_DEVICE bool has_part() {
    if (offset_ < row_bytes_ && num_terms_ > 0) return true;
    row_ = next_row_;
    num_terms_ = next_terms_;
    next_terms_ = 0;
    offset_ = 0;
    return num_terms_ > 0;
  }

  EP_DEVICE void load_part() {
    const auto* row = reinterpret_cast<const std::byte*>(
        group_.shuffle(reinterpret_cast<std::uintptr_t>(row_), term_));
    const std::int64_t left = row_bytes_ - offset_;
    const auto bytes = static_cast<std::uint32_t>(left < kSlotBytes ? left : kSlotBytes);
    const int slot = wrapped(front_ + num_loaded_);
    if (group_.is_leader()) {
      mbarrier_arrive_expecting(barrier(slot), bytes);
      bulk_load(address(slot), row + offset_, bytes, barrier(slot));
    }
    ++num_loaded_;
    if (++term_ < num_terms_) return;
    term_ = 0;
    offset_ += kSlotBytes;
  }

  EP_DEVICE static int wrapped(int slot) { return slot < kNumSlots ? slot : slot - kNumSlots; }

  WarpGroup group_;
  std::byte* shared_;
  std::int64_t row_bytes_;
  int front_ = 0;
  int num_loaded_ = 0;  // from front_ on
  std::uint32_t parities_ = 0;

  // What is loaded next: thread t holds the row of term t.
  const std::byte* row_ = nullptr;
  int num_terms_ = 0;
  int term_ = 0;
  std::int64_t offset_ = 0;
  // The sum behind it.
  const std::byte* next_row_ = nullptr;
  int next_terms_ = 0;
};

/// Works on a sum when the next one is pushed (a sum without an output ends a series): by then the
/// terms of both are on their way. Its stores are ordinary ones, as WarpRowReducer's.
template <int kNumSlots>
class BulkRowReducer {
 public:
  using Sum = WarpRowSum;
  using Ring = TermRing<kNumSlots>;

  EP_HOST_DEVICE static constexpr std::int64_t shared_bytes() { return Ring::shared_bytes(); }

  EP_DEVICE BulkRowReducer(WarpGroup group, std::byte* shared, const SumSpec& spec)
      : spec_(spec),
        ring_(group, shared, num_vectors_of(spec) * static_cast<std::int64_t>(sizeof(Vector))),
        front_(group) {}
  BulkRowReducer(const BulkRowReducer&) = delete;
  BulkRowReducer& operator=(const BulkRowReducer&) = delete;

  EP_DEVICE Sum begin(WarpGroup group) const { return Sum(group); }
  /// Inline and called at one place of a lane: it holds the sums of all dtypes.
  EP_DEVICE void push(WarpGroup /*group*/, const Sum& sum) {
    ring_.append(sum);
    if (front_.out != nullptr) finish_front();
    front_ = sum;
  }
  EP_DEVICE void drain(WarpGroup /*group*/) const {}
  /// Bulk loads that follow come after what this lane's last acquire made visible.
  EP_DEVICE void fence_acquired() const {
    // [sync:row-proxy] acquire: thread 0 has acquired, and starts the loads that follow
    fence_async_proxy_acquire();
  }

 private:
  EP_DEVICE void finish_front() {
    if (is_copy(front_, spec_)) {
      copy_front();
    } else {
      sum_terms(front_, ring_, spec_);
    }
  }

  EP_DEVICE void copy_front() {
    const std::int64_t end = num_vectors_of(spec_);
    for (std::int64_t part = 0; part < end; part += RawPart::kVectors) {
      const std::int64_t first = part + front_.group.thread_rank();
      ring_.take(0, first, end, [&](int i, const Vector& v) {
        const std::int64_t at = first + i * kWarpThreads;
        if (at < end)
          store_streamed(front_.out + at * static_cast<std::int64_t>(sizeof(Vector)), v);
      });
    }
  }

  SumSpec spec_;
  Ring ring_;
  Sum front_;
};

}  // namespace ep::primitives
