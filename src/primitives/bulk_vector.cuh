// SPDX-License-Identifier: Apache-2.0
// BulkEngine (row_pipe.h) of GPUs without a bulk copy unit: 16-byte loads and stores through
// registers.
#pragma once

#include "base/macros.h"
#include "primitives/coop.cuh"
#include "primitives/ptx.cuh"
#include "primitives/row_pipe.h"

#include <cstddef>
#include <cstdint>

namespace ep::primitives {

/// Copies `num_vectors` vectors, eight loads of each thread in flight at once. src and dst do not
/// overlap.
EP_DEVICE inline void copy_vectors(WarpGroup group,
                                   std::byte* dst,
                                   const std::byte* src,
                                   std::int64_t num_vectors) {
  constexpr int kInFlight = 8;
  constexpr auto kVectorBytes = static_cast<std::int64_t>(sizeof(Vector));
  Vector vectors[kInFlight];
  for (std::int64_t first = group.thread_rank(); first < num_vectors;
       first += kInFlight * kWarpThreads) {
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const std::int64_t at = first + i * kWarpThreads;
      if (at < num_vectors) vectors[i] = load_streamed(src + at * kVectorBytes);
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const std::int64_t at = first + i * kWarpThreads;
      if (at < num_vectors) store_streamed(dst + at * kVectorBytes, vectors[i]);
    }
  }
}

/// A stage is the source itself: the first store brings the row into L2, further ones find it
/// there.
class VectorBulk {
 public:
  static constexpr int kStages = 1;

  EP_HOST_DEVICE static constexpr std::int64_t shared_bytes(std::int64_t /*stage_bytes*/) {
    return 0;
  }

  EP_DEVICE VectorBulk(WarpGroup group, std::byte* /*shared*/, std::int64_t /*stage_bytes*/)
      : group_(group) {}

  EP_DEVICE void load(int /*stage*/, const RowParts& parts) { parts_ = parts; }
  EP_DEVICE void wait_loaded(int /*stage*/) const {}
  EP_DEVICE void store(std::byte* dst, int /*stage*/, StageSlice slice) const {
    copy_vectors(group_, dst, parts_.at(slice.offset),
                 slice.bytes / static_cast<std::int64_t>(sizeof(Vector)));
  }
  EP_DEVICE void commit() const {}
  template <int kPending>
  EP_DEVICE void wait_read() const {}
  template <int kPending>
  EP_DEVICE void wait_landed() const {}
  EP_DEVICE void wait_all() const {}
  /// Ordinary stores: the group's sync() and the release that follow order them.
  EP_DEVICE void fence() const {}
  EP_DEVICE void fence_acquired() const {}

 private:
  WarpGroup group_;
  RowParts parts_;
};
static_assert(BulkEngine<VectorBulk>);

}  // namespace ep::primitives
