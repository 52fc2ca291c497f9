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

/// What a warp reads at once.
inline constexpr int kRingPartUnit = kWarpThreads * static_cast<int>(sizeof(Vector));
/// A ring must hold a part of every term.
EP_HOST_DEVICE constexpr int min_ring_bytes(int max_terms) { return max_terms * kRingPartUnit; }

/// A warp's ring of slots, each for a part of a term; all terms of a part are there together. Loads
/// run ahead of the sums, across the end of one sum into the next. The fewer terms a sum usually
/// has, the larger the parts: one thread starts a load per 0.3 us, whatever its size.
template <int kRingBytes>
class TermRing {
 public:
  static constexpr int kMaxSlots = 64;
  static constexpr std::int64_t kBarrierBytes =
      kMaxSlots * static_cast<std::int64_t>(sizeof(std::uint64_t));
  static constexpr std::int64_t kPartUnit = kRingPartUnit;
  static_assert(kBarrierBytes % layout::kLineBytes == 0);

  EP_HOST_DEVICE static constexpr std::int64_t shared_bytes() { return kBarrierBytes + kRingBytes; }

  EP_DEVICE TermRing(WarpGroup group, std::byte* shared, const SumSpec& spec)
      : group_(group),
        shared_(shared),
        row_bytes_(num_vectors_of(spec) * static_cast<std::int64_t>(sizeof(Vector))),
        part_bytes_(part_bytes_for(row_bytes_, spec)),
        num_slots_(num_slots_for(part_bytes_)) {
    for (int slot = group_.thread_rank(); slot < num_slots_; slot += kWarpThreads)
      mbarrier_init(barrier(slot));
    fence_mbarrier_init();  // [sync:stage-barrier] release: barriers are set up
    group_.sync();
  }
  /// Also where a lane gave up: no load is under way when the memory of the slots goes.
  EP_DEVICE ~TermRing() { await(num_loaded_); }
  TermRing(const TermRing&) = delete;
  TermRing& operator=(const TermRing&) = delete;

  /// The terms of the sum follow those appended before. Precondition: at most one earlier sum has
  /// terms that were not taken.
  EP_DEVICE void append(const WarpRowSum& sum) {
    next_row_ = sum.row;
    next_terms_ = sum.num_terms;
    fill();
  }

  EP_DEVICE std::int64_t part_vectors() const {
    return part_bytes_ / static_cast<std::int64_t>(sizeof(Vector));
  }
  EP_DEVICE void begin_part(int num_terms, std::int64_t first_vector) {
    await(num_terms);
    part_first_ = first_vector;
  }
  /// As RowLoads::take.
  template <class Visit>
  EP_DEVICE void take(int term, std::int64_t first, std::int64_t end, Visit visit) const {
    const Vector* slot = layout::array_at<Vector>(address(wrapped(front_ + term)), 0) - part_first_;
#pragma unroll
    for (int i = 0; i < RawPart::kInFlight; ++i) {
      const std::int64_t at = first + i * kWarpThreads;
      visit(i, at < end ? slot[at] : Vector{});
    }
  }
  EP_DEVICE void end_part(int num_terms) {
    front_ += num_terms;
    if (front_ >= num_slots_) {
      front_ -= num_slots_;
      parity_ ^= 1U;
    }
    num_loaded_ -= num_terms;
    group_.sync();  // all threads have read the slots: they may be loaded again
    fill();
  }

 private:
  /// Two parts of every term of a usual sum, and one of every term of the largest.
  EP_DEVICE static std::int64_t part_bytes_for(std::int64_t row_bytes, const SumSpec& spec) {
    const int usual_terms = spec.usual_terms > 0 ? spec.usual_terms : spec.max_terms;
    const std::int64_t fitting = kRingBytes / (2 * usual_terms);
    const std::int64_t num_parts =
        layout::div_up(row_bytes, fitting > kPartUnit ? fitting : kPartUnit);
    const std::int64_t bytes = layout::round_up(layout::div_up(row_bytes, num_parts), kPartUnit);
    const std::int64_t most = kRingBytes / spec.max_terms / kPartUnit * kPartUnit;
    return bytes < most ? bytes : most;
  }
  EP_DEVICE static int num_slots_for(std::int64_t part_bytes) {
    const auto num_slots = static_cast<int>(kRingBytes / part_bytes);
    return num_slots < kMaxSlots ? num_slots : kMaxSlots;
  }

  EP_DEVICE std::uint64_t* barrier(int slot) const {
    return layout::array_at<std::uint64_t>(shared_, 0) + slot;
  }
  EP_DEVICE std::byte* address(int slot) const {
    return shared_ + kBarrierBytes + slot * part_bytes_;
  }
  EP_DEVICE int wrapped(int slot) const { return slot < num_slots_ ? slot : slot - num_slots_; }

  /// The first `count` loaded slots are complete.
  EP_DEVICE void await(int count) const {
    for (int i = 0; i < count; ++i) {
      const std::uint32_t is_wrapped = front_ + i < num_slots_ ? 0 : 1;
      // [sync:stage-barrier] acquire: the slot holds the part
      mbarrier_wait(barrier(wrapped(front_ + i)), parity_ ^ is_wrapped);
    }
  }

  EP_DEVICE void fill() {
    while (num_loaded_ < num_slots_ && has_part()) load_part();
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
    const auto bytes = static_cast<std::uint32_t>(left < part_bytes_ ? left : part_bytes_);
    const int slot = wrapped(front_ + num_loaded_);
    if (group_.is_leader()) {
      mbarrier_arrive_expecting(barrier(slot), bytes);
      bulk_load(address(slot), row + offset_, bytes, barrier(slot));
    }
    ++num_loaded_;
    if (++term_ < num_terms_) return;
    term_ = 0;
    offset_ += part_bytes_;
  }

  WarpGroup group_;
  std::byte* shared_;
  std::int64_t row_bytes_;
  std::int64_t part_bytes_;
  int num_slots_;
  int front_ = 0;
  int num_loaded_ = 0;        // from front_ on
  std::uint32_t parity_ = 0;  // of the phase that completes slots from front_ to the last
  std::int64_t part_first_ = 0;

  // What is loaded next: thread t holds the row of term t.
  const std::byte* row_ = nullptr;
  int num_terms_ = 0;
  int term_ = 0;
  std::int64_t offset_ = 0;
  // The sum behind it.
  const std::byte* next_row_ = nullptr;
  int next_terms_ = 0;
};

/// Its loads are bulk loads, its stores ordinary ones, as WarpRowReducer's.
template <int kRingBytes, SumShape kShape>
class BulkRowReducer {
 public:
  using Sum = WarpRowSum;
  using Ring = TermRing<kRingBytes>;

  EP_HOST_DEVICE static constexpr std::int64_t shared_bytes() { return Ring::shared_bytes(); }

  EP_DEVICE BulkRowReducer(WarpGroup group, std::byte* shared, const SumSpec& spec)
      : spec_(spec), ring_(group, shared, spec) {}
  BulkRowReducer(const BulkRowReducer&) = delete;
  BulkRowReducer& operator=(const BulkRowReducer&) = delete;

  EP_DEVICE Sum begin(WarpGroup group) const { return Sum(group); }
  EP_DEVICE void load(WarpGroup /*group*/, const Sum& sum) { ring_.append(sum); }
  /// Inline and called at one place of a lane: it holds the sums of all dtypes.
  EP_DEVICE void finish(WarpGroup /*group*/, const Sum& sum) {
    if (is_copy(sum, spec_)) {
      copy_term(sum, ring_, spec_);
    } else {
      sum_terms<kShape>(sum, ring_, spec_);
    }
  }
  EP_DEVICE void drain(WarpGroup /*group*/) const {}
  /// Bulk loads that follow come after what this lane's last acquire made visible.
  EP_DEVICE void fence_acquired() const {
    // [sync:row-proxy] acquire: thread 0 has acquired, and starts the loads that follow
    fence_async_proxy_acquire();
  }

 private:
  SumSpec spec_;
  Ring ring_;
};

}  // namespace ep::primitives
