// SPDX-License-Identifier: Apache-2.0
// Streams rows through a ring of stages: one load, any number of destinations per row.
#pragma once

#include "base/macros.h"
#include "primitives/coop.h"

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace ep::primitives {

/// A row, and what travels with it (scales): the tail lies behind the row in the stage.
struct RowParts {
  const std::byte* row = nullptr;
  std::int64_t row_bytes = 0;
  const std::byte* tail = nullptr;
  std::int64_t tail_bytes = 0;

  /// Where the byte lies that has this offset in the stage.
  EP_HOST_DEVICE const std::byte* at(std::int64_t offset) const {
    return offset < row_bytes ? row + offset : tail + (offset - row_bytes);
  }
};

/// Bytes of a stage.
struct StageSlice {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
};

// clang-format off
/// What copies bytes: TMA bulk copies (bulk_tma.cuh), 16-byte vectors (bulk_vector.cuh), memcpy (host_exec.h).
///
/// | call                     | guarantee when it returns                                                           |
/// |--------------------------|-------------------------------------------------------------------------------------|
/// | load(stage, parts)       | started; the parts must stay as they are until the stage is retired                 |
/// | wait_loaded(stage)       | the stage holds the row, and its tail behind it                                     |
/// | store(dst, stage, slice) | started; needs wait_loaded(stage)                                                   |
/// | commit()                 | closes the group of stores begun since the last commit                              |
/// | wait_read<kPending>()    | all but the newest kPending groups have read their stage: it may be loaded again    |
/// | wait_landed<kPending>()  | the stores of all but the newest kPending groups have landed                        |
/// | wait_all()               | all stores have landed                                                              |
/// | fence()                  | landed stores precede a release that this lane makes next                           |
/// | fence_acquired()         | copies that follow come after what this lane's last acquire made visible            |
// clang-format on
template <class B>
concept BulkEngine = requires(B bulk, RowParts parts, std::byte* dst, int stage, StageSlice slice) {
  { B::kStages } -> std::convertible_to<int>;
  bulk.load(stage, parts);
  bulk.wait_loaded(stage);
  bulk.store(dst, stage, slice);
  bulk.commit();
  bulk.template wait_read<0>();
  bulk.template wait_landed<0>();
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
  RowPipe(const RowPipe&) = delete;
  RowPipe& operator=(const RowPipe&) = delete;

  /// Also where a lane gave up: no copy is under way when the memory of the stages goes.
  EP_HOST_DEVICE ~RowPipe() {
    while (!is_empty()) {
      wait_front();
      retire();
    }
    bulk_.wait_all();
  }

  EP_HOST_DEVICE bool is_full() const { return num_rows_ == kPrefetch; }
  EP_HOST_DEVICE bool is_empty() const { return num_rows_ == 0; }

  /// Starts loading row number `row`; precondition: not is_full().
  EP_HOST_DEVICE void load(std::int64_t row, const RowParts& parts) {
    // The stage was last used kStages rows ago; of the groups committed since, this many may still
    // be reading.
    bulk_.template wait_read<Bulk::kStages - kPrefetch>();
    bulk_.load(load_stage_, parts);
    // Compared, not indexed: an index known at run time would move the array out of a GPU's
    // registers.
    for (int i = 0; i < kPrefetch; ++i) {
      if (i == num_rows_) rows_[i] = row;
    }
    load_stage_ = next_stage(load_stage_);
    ++num_rows_;
  }

  /// Number of the oldest row; precondition: not is_empty().
  EP_HOST_DEVICE std::int64_t front() const { return rows_[0]; }
  /// Waits until the oldest row is there; returns its number.
  EP_HOST_DEVICE std::int64_t wait_front() {
    bulk_.wait_loaded(front_stage_);
    return front();
  }
  /// Stores bytes of the oldest row's stage.
  EP_HOST_DEVICE void store(std::byte* dst, StageSlice slice) {
    bulk_.store(dst, front_stage_, slice);
  }
  /// The oldest row has all its destinations.
  EP_HOST_DEVICE void retire() {
    bulk_.commit();
    for (int i = 1; i < kPrefetch; ++i) rows_[i - 1] = rows_[i];
    front_stage_ = next_stage(front_stage_);
    --num_rows_;
  }

  /// The stores of all retired rows but the newest kNewest have landed and precede the next release
  /// of this lane. Loads go on meanwhile, and so do the newest rows.
  template <int kNewest>
  EP_HOST_DEVICE void await_landed() {
    bulk_.template wait_landed<kNewest>();
    bulk_.fence();
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

  EP_HOST_DEVICE static constexpr int next_stage(int stage) {
    return stage + 1 == Bulk::kStages ? 0 : stage + 1;
  }

  Bulk bulk_;
  int load_stage_ = 0;
  int front_stage_ = 0;
  int num_rows_ = 0;
  std::int64_t rows_[kPrefetch] =
      {};  // numbers of the rows that are loaded or loading, oldest first
};

}  // namespace ep::primitives
