// SPDX-License-Identifier: Apache-2.0
// BulkEngine (row_pipe.h) over the bulk copy unit of sm_90 and later: rows pass through shared
// memory, and no register.
#pragma once

#include "base/macros.h"
#include "layout/regions.h"
#include "primitives/coop.cuh"
#include "primitives/ptx.cuh"
#include "primitives/row_pipe.h"

#include <cstddef>
#include <cstdint>

namespace ep::primitives {

/// Ring of kNumStages stages that one warp owns. Thread 0 starts every copy, so that its bulk
/// groups count them all; the other threads only wait for loads. Rows and their addresses are
/// multiples of 16 bytes.
template <int kNumStages>
class TmaBulk {
 public:
  static constexpr int kStages = kNumStages;

  /// Shared memory of one ring: a line of barriers, then the stages.
  EP_HOST_DEVICE static constexpr std::int64_t shared_bytes(std::int64_t stage_bytes) {
    return layout::kLineBytes + kNumStages * stage_bytes;
  }

  EP_DEVICE TmaBulk(WarpGroup group, std::byte* shared, std::int64_t stage_bytes)
      : group_(group), shared_(shared), stage_bytes_(static_cast<std::uint32_t>(stage_bytes)) {
    if (group_.is_leader()) {
      for (int stage = 0; stage < kNumStages; ++stage) mbarrier_init(barrier(stage));
      fence_mbarrier_init();  // [sync:stage-barrier] release: barriers are set up. Acquired in
                              // wait_loaded.
    }
    group_.sync();
  }

  EP_DEVICE void load(int stage, const RowParts& parts) {
    parities_ ^= 1U << stage;
    if (!group_.is_leader()) return;
    const auto row_bytes = static_cast<std::uint32_t>(parts.row_bytes);
    const auto tail_bytes = static_cast<std::uint32_t>(parts.tail_bytes);
    mbarrier_arrive_expecting(barrier(stage), row_bytes + tail_bytes);
    bulk_load(stage_address(stage), parts.row, row_bytes, barrier(stage));
    if (tail_bytes > 0)
      bulk_load(stage_address(stage) + row_bytes, parts.tail, tail_bytes, barrier(stage));
  }
  EP_DEVICE void wait_loaded(int stage) {
    mbarrier_wait(barrier(stage), (parities_ >> stage) &
                                      1U);  // [sync:stage-barrier] acquire: the stage holds the row
  }

  EP_DEVICE void store(std::byte* dst, int stage, StageSlice slice) {
    if (group_.is_leader())
      bulk_store(dst, stage_address(stage) + slice.offset, static_cast<std::uint32_t>(slice.bytes));
  }
  EP_DEVICE void commit() {
    if (group_.is_leader()) bulk_commit();
  }
  template <int kPending>
  EP_DEVICE void wait_read() {
    if (group_.is_leader()) bulk_wait_read<kPending>();
  }
  template <int kPending>
  EP_DEVICE void wait_landed() {
    if (group_.is_leader()) bulk_wait_landed<kPending>();
  }
  EP_DEVICE void wait_all() {
    if (group_.is_leader()) bulk_wait_all();
  }

  EP_DEVICE void fence() {
    // [sync:row-proxy] release: bulk stores precede the release that follows, also of another
    // thread after a sync().
    if (group_.is_leader()) fence_async_proxy_release();
  }
  EP_DEVICE void fence_acquired() {
    // [sync:row-proxy] acquire: thread 0 has acquired, and starts the copies that follow.
    if (group_.is_leader()) fence_async_proxy_acquire();
  }

 private:
  static_assert(kNumStages * static_cast<int>(sizeof(std::uint64_t)) <= layout::kLineBytes);

  EP_DEVICE std::uint64_t* barrier(int stage) const {
    return layout::array_at<std::uint64_t>(shared_, 0) + stage;
  }
  EP_DEVICE std::byte* stage_address(int stage) const {
    return layout::array_at<std::byte>(shared_,
                                       layout::kLineBytes + std::int64_t{stage_bytes_} * stage);
  }

  WarpGroup group_;
  std::byte* shared_;
  std::uint32_t stage_bytes_;
  // Bit s: parity of the newest load into stage s. Phases of a barrier count from 0, hence all ones
  // before the first.
  std::uint32_t parities_ = ~0U;
};
static_assert(BulkEngine<TmaBulk<2>>);

}  // namespace ep::primitives
