// SPDX-License-Identifier: Apache-2.0
// How many buffers a run rotates over, and what its group must hold.
#pragma once

#include "bench/job.h"

#include <ep/config.h>
#include <ep/sm_budget.h>

#include <cstdint>
#include <optional>

namespace ep::bench {

struct BufferPlan {
  /// Sets of inputs and outputs that the iterations take in turn. Together they exceed the
  /// last-level cache, unless is_capped.
  int num_sets = 1;
  bool is_capped = false;
  std::int64_t cache_bytes = 0;
  std::int64_t set_bytes = 0;  ///< inputs and received rows of all ranks in one set, at least

  /// Rows that a receive tensor may need, and the static capacity if the options ask for one.
  std::int64_t max_rows = 0;
  std::optional<std::int64_t> capacity;

  /// The memcpy that operations are compared with: bytes of one copy and pairs of buffers.
  std::int64_t max_copy_bytes = 0;
  int num_copy_sets = 1;

  /// Of the arena, for all of the above: nothing grows while the run lasts.
  std::int64_t pool_bytes = 0;
};

inline constexpr int kMinSets = 2;
/// As many routings, too.
inline constexpr int kMinCudaSets = 4;
inline constexpr int kMaxSets = 32;

BufferPlan plan_buffers(const Job& job);

/// For the library's suggestions.
OpShape op_shape_of(const Options& options, Movement movement);

GroupConfig group_config_of(const Job& job, const BufferPlan& plan);

}  // namespace ep::bench
