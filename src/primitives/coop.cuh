// SPDX-License-Identifier: Apache-2.0
// Groups of threads on a GPU (coop.h). A lane of a role is one full warp (docs/adr/0003); SoloGroup
// serves one thread.
#pragma once

#include "base/macros.h"
#include "primitives/coop.h"

#include <cstdint>

namespace ep::primitives {

inline constexpr int kWarpThreads = 32;

/// All 32 threads of a warp. Every member that exchanges values is called by all of them together.
class WarpGroup {
 public:
  /// The warp of the calling thread, in a CTA whose threads are numbered by x alone.
  EP_DEVICE static WarpGroup this_warp() {
    return WarpGroup(static_cast<int>(threadIdx.x) % kWarpThreads);
  }

  EP_DEVICE int thread_rank() const { return rank_; }
  EP_DEVICE int size() const { return kWarpThreads; }
  EP_DEVICE bool is_leader() const { return rank_ == 0; }

  /// Orders memory among the threads of the warp, too.
  EP_DEVICE void sync() const { __syncwarp(); }

  EP_DEVICE std::uint64_t broadcast(std::uint64_t value) const {
    const std::uint64_t first = shuffle(value, 0);
    // A shuffle orders no memory, but what thread 0 has acquired must hold for all.
    sync();
    return first;
  }

  EP_DEVICE std::int64_t broadcast_last(std::int64_t value) const {
    const std::int64_t last = shuffle(value, kWarpThreads - 1);
    sync();
    return last;
  }
  EP_DEVICE bool all(bool is_true) const {
    const bool are_true = __all_sync(kAllThreads, is_true) != 0;
    // A vote orders no memory, but what each thread has acquired must hold for all.
    sync();
    return are_true;
  }

  /// The value of thread `source`.
  template <class T>
  EP_DEVICE T shuffle(T value, int source) const {
    return __shfl_sync(kAllThreads, value, source);
  }

  /// The value of the thread `distance` further on; of this thread where there is none.
  template <class T>
  EP_DEVICE T shuffle_down(T value, int distance) const {
    return __shfl_down_sync(kAllThreads, value, distance);
  }

  /// The sum of the values of this thread and all before it.
  template <class T>
  EP_DEVICE T inclusive_sum(T value) const {
    for (int distance = 1; distance < kWarpThreads; distance *= 2) {
      const T before = __shfl_up_sync(kAllThreads, value, distance);
      if (rank_ >= distance) value += before;
    }
    return value;
  }

 private:
  static constexpr std::uint32_t kAllThreads = 0xFFFFFFFFU;

  EP_DEVICE explicit WarpGroup(int rank) : rank_(rank) {}

  int rank_;
};
static_assert(Coop<WarpGroup>);

}  // namespace ep::primitives
