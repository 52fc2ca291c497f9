// SPDX-License-Identifier: Apache-2.0
// What the host decides about one combine; plain data, passed to the roles by value.
#pragma once

#include "intranode/dispatch_params.h"
#include "primitives/row_reducer.h"

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace ep::intranode {

/// A small fp32 array that peers read: copied into the arena before the announcement, unless it
/// lies there already.
struct SideArray {
  StridedInput input;         ///< fp32
  std::int64_t num_rows = 0;  ///< 0: none
  std::int64_t num_cols = 0;
  float* arena_copy = nullptr;  ///< [num_rows, num_cols]; null: the input itself lies in the arena
};

enum class CombineRole { kPrepare, kPull, kPush };

struct CombineParams {
  primitives::OpParams op;
  RoutingParams routing;
  RowInput rows;                              ///< this rank's expert rows
  const std::int32_t* src_tokens = nullptr;   ///< of this rank's records
  const std::int32_t* record_rows = nullptr;  ///< of this rank's records, kExpertMajor
  SideArray weights;                          ///< this rank's weights [T, K]
  SideArray side;  ///< gradient of this rank's received weights: [N, K] flat, [N, 1] kExpertMajor
  float* side_out = nullptr;  ///< [T, K]: the router's gradient
  RowInput bias;              ///< data null: none
  std::byte* out = nullptr;
  std::int64_t out_stride_bytes = 0;
  primitives::SumSpec sum;
  // Tickets of the pull and of the push role: powers of two up to layout::kChunkTokens.
  int ticket_tokens = layout::kChunkTokens;
  int push_ticket_tokens = layout::kChunkTokens;
  bool pushes = false;     ///< owners send one row per pair through the ring
  bool is_staged = false;  ///< this rank's rows are outside the arena and go through the ring
  layout::BlockAnnouncement block;

  EP_HOST_DEVICE bool has_expert_rows() const { return routing.tables.shape.has_expert_rows; }
  /// Whether this launch has lanes of the role.
  EP_HOST_DEVICE bool has_role(CombineRole role) const {
    switch (role) {
      case CombineRole::kPrepare:
        return true;
      case CombineRole::kPull:
        return op.rejection == layout::kAccepted;
      case CombineRole::kPush:
        return op.rejection == layout::kAccepted && (pushes || is_staged);
    }
    return false;
  }
};
static_assert(std::is_trivially_copyable_v<CombineParams> && sizeof(CombineParams) < 4096);

}  // namespace ep::intranode
