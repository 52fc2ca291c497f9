// SPDX-License-Identifier: Apache-2.0
// Streams rows through a ring of stages: one load, any number of destinations per row.
#pragma once

#include "base/macros.h"
#include "primitives/coop.h"

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace ep::primitives {

/// What copies bytes: TMA bulk copies (bulk_tma.cuh), 16-byte vectors (bulk_vector.cuh), memcpy
/// (host_exec.h).
///
/// | call                     | guarantee when it returns |
/// |--------------------------|------------------------------------------------------------------------------------|
/// | load(stage, src, bytes)  | started; `src` must stay as it is until the stage is retired | |
/// wait_loaded(stage)       | the stage holds the row | | store(dst, stage, bytes) | started; needs
/// wait_loaded(stage)                                                  | | commit() | closes the
/// group of stores begun since the last commit                             | | wait_read(pending)
/// | all but the newest `pending` groups have read their stage: it may be loaded again  | |
/// wait_all()               | all stores have landed | | fence()                  | landed stores
/// precede a release that this thread makes next                        | | fence_acquired() |
/// loads that follow see what this thread's last acquire made visible                 |
template <class B>
concept BulkEngine =
    requires(B bulk, const std::byte* src, std::byte* dst, int stage, std::int64_t bytes) {
  { B::kStages } -> std::convertible_to<int>;
  bulk.load(stage, src, bytes);
  bulk.wait_loaded(stage);
  bulk.store(dst, stage, bytes);
  bulk.commit();
  bulk.wait_read(stage);
  bulk.wait_all();
  bulk.fence();
  bulk.fence_acquired();
};

/// Rows enter with load() and leave in the same order: wait_front(), store() for each destination,
/// retire(). All threads of the lane's group call every member together.
template <BulkEngine Bulk>
class RowPipe {
 public:
  EP_HOST_DEVICE explicit RowPipe(Bulk bulk) : bulk_(bulk) {}

  EP_HOST_DEVICE bool is_full() const { return loaded_ - retired_ == kPrefetch; }
  EP_HOST_DEVICE bool is_empty() const { return loaded_ == retired_; }

  /// Starts loading row number `row`; precondition: not is_full().
  EP_HOST_DEVICE void load(std::int64_t row, const std::byte* src, std::int64_t bytes) {
    // The stage was last used kStages rows ago; of the groups committed since, this many may still
    // be reading.
    bulk_.wait_read(Bulk::kStages - kPrefetch);
    bulk_.load(stage_of(loaded_), src, bytes);
    rows_[stage_of(loaded_)] = row;
    ++loaded_;
  }

  /// Waits until the oldest row is there; returns its number.
  EP_HOST_DEVICE std::int64_t wait_front() {
    bulk_.wait_loaded(stage_of(retired_));
    return rows_[stage_of(retired_)];
  }
  /// Stores the oldest row.
  EP_HOST_DEVICE void store(std::byte* dst, std::int64_t bytes) {
    bulk_.store(dst, stage_of(retired_), bytes);
  }
  /// The oldest row has all its destinations.
  EP_HOST_DEVICE void retire() {
    bulk_.commit();
    ++retired_;
  }

  /// All stores have landed and precede the next release of this lane.
  EP_HOST_DEVICE void drain() {
    bulk_.wait_all();
    bulk_.fence();
  }

  EP_HOST_DEVICE void fence_acquired() { bulk_.fence_acquired(); }

 private:
  // Loads in flight ahead of the stores: half of the stages, the other half drains.
  static constexpr int kPrefetch = Bulk::kStages > 1 ? Bulk::kStages / 2 : 1;

  EP_HOST_DEVICE static int stage_of(std::uint64_t row) {
    return static_cast<int>(row % Bulk::kStages);
  }

  Bulk bulk_;
  std::uint64_t loaded_ = 0;
  std::uint64_t retired_ = 0;
  std::int64_t rows_[Bulk::kStages] = {};
};

}  // namespace ep::primitives
