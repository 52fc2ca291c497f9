// SPDX-License-Identifier: Apache-2.0
// What the roles of one rank tell its host unasked: words in memory of the host, which it may read
// at any time without waiting for a device.
#pragma once

#include "layout/regions.h"

#include <cstdint>

namespace ep::layout {

/// Nothing is written for an operation that succeeds. Of refused operations the last one is kept.
struct alignas(kLineBytes) OpReport {
  /// Not 0 once a lane of this rank gave up; the FaultRecord says why.
  std::uint64_t has_failed = 0;

  /// The last operation that the ranks refused, 0 = none; written after all that follows.
  std::uint64_t refused_epoch = 0;
  std::uint64_t call = 0;      ///< its OpParams::call
  std::uint64_t rejected = 0;  ///< ~position of this rank's lowest invalid topk_idx, 0 = none
  std::uint32_t kind = 0;      ///< OpKind
  std::uint32_t topk = 0;
  std::uint32_t num_experts = 0;

  /// The rank that refused its own arguments, and its reason; -1: the ranks' calls differ.
  std::int32_t refuser = -1;
  std::uint32_t reason = 0;

  /// Where they differ: the first OpField, a rank that differs from rank 0, and both values.
  std::int32_t field = -1;
  std::int32_t differing_rank = 0;
  std::uint32_t value_of_first = 0;
  std::uint32_t value_of_differing = 0;
};
static_assert(sizeof(OpReport) == kLineBytes);

}  // namespace ep::layout
