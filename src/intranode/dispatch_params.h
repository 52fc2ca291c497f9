// SPDX-License-Identifier: Apache-2.0
// What the host decides about one dispatch; plain data, passed to the roles by value.
#pragma once

#include "layout/announcement.h"
#include "layout/routing_tables.h"
#include "primitives/op_context.h"

#include <ep/dtype.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace ep::intranode {

/// A two-dimensional input with any strides, in elements.
struct StridedInput {
  const void* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t col_stride = 0;
};

/// Rows of bytes.
struct RowInput {
  const std::byte* data = nullptr;
  std::int64_t stride_bytes = 0;
  std::int64_t row_bytes = 0;

  EP_HOST_DEVICE const std::byte* row(std::int64_t index) const {
    return data + index * stride_bytes;
  }
  /// Every row begins and ends on a unit of 16 bytes.
  bool is_in_units() const {
    const auto bits = reinterpret_cast<std::uintptr_t>(data) |
                      static_cast<std::uintptr_t>(stride_bytes) |
                      static_cast<std::uintptr_t>(row_bytes);
    return bits % static_cast<std::uintptr_t>(layout::kLocationUnit) == 0;
  }
};

/// Routing shared by dispatch, combine and backward.
struct RoutingParams {
  layout::TableLayout tables;
  std::byte* block = nullptr;              ///< of `tables`
  const std::int32_t* rank_of = nullptr;   ///< [E]
  const std::int32_t* local_of = nullptr;  ///< [E]
  int num_local_experts = 0;
  int alignment = 1;
  /// layout::RailTableLayout; null: all ranks are of one node.
  std::byte* rail_block = nullptr;
};

enum class DispatchRole { kRoute, kSend, kCopy };

struct DispatchParams {
  primitives::OpParams op;
  RoutingParams routing;
  RowInput x;
  RowInput scales;  ///< row_bytes 0: none
  StridedInput topk_idx;
  int input_idx_bytes = 8;    ///< of an entry of topk_idx
  int idx_bytes = 8;          ///< of an entry of the received one
  StridedInput topk_weights;  ///< fp32
  bool is_fresh = false;      ///< topk_idx is counted; else the tables exist already
  bool has_weights = false;
  bool knows_block = true;    ///< `block` is known at the launch
  bool counts_tokens = true;  ///< false: topk_idx is not looked at, all ranks will refuse
  bool has_counts = true;     ///< this launch counts and announces the operation
  bool has_moves = true;      ///< this launch announces blocks and moves rows
  bool copies_at_receiver = false;
  /// Scales pass through the row pipe behind their row: all of them in units of 16 bytes.
  bool pipes_scales = false;
  /// A ticket of the send role: a power of two up to layout::kChunkTokens. A chunk that announces
  /// itself is one ticket, whatever this says.
  int ticket_tokens = layout::kChunkTokens;
  bool has_records = true;  ///< kFlat: this launch sends ids, weights and source tokens
  layout::BlockAnnouncement
      block;  ///< this rank's outputs; the head is made by the announcing role
  std::uint32_t block_rejection = layout::kAccepted;

  // Backward of a weighted combine: the rows that came back, and where the router's gradient goes
  // (block.kSideValues).
  bool returns_gradient = false;
  RowInput expert_rows;
  DType dtype = DType::kBf16;

  EP_HOST_DEVICE bool has_expert_rows() const { return routing.tables.shape.has_expert_rows; }
  EP_HOST_DEVICE int send_ticket_tokens() const {
    return copies_at_receiver ? layout::kDispatchChunkTokens : ticket_tokens;
  }
  /// Whether this launch counts topk_idx.
  EP_HOST_DEVICE bool is_counting() const {
    return has_counts && is_fresh && counts_tokens && op.rejection == layout::kAccepted;
  }
  EP_HOST_DEVICE bool is_moving() const { return has_moves && op.rejection == layout::kAccepted; }
  /// The outputs are known before the counts are: peers learn of both in one round.
  EP_HOST_DEVICE bool announces_block_first() const {
    return knows_block && has_counts && is_moving();
  }
  /// Whether this launch has lanes of the role. Refused arguments are announced, and nothing else
  /// is looked at.
  EP_HOST_DEVICE bool has_role(DispatchRole role) const {
    switch (role) {
      case DispatchRole::kRoute:
        return true;
      case DispatchRole::kSend:
        return is_moving();
      case DispatchRole::kCopy:
        return is_moving() && copies_at_receiver;
    }
    return false;
  }
};
static_assert(std::is_trivially_copyable_v<DispatchParams> && sizeof(DispatchParams) < 4096);

/// Values of LocalState::verdict.
enum class Verdict : std::uint64_t {
  kPending = 0,
  kAccepted,
  kRejected,  ///< a rank refused its arguments, or the ranks called different operations: nothing
              ///< was sent
  kBlockRejected,  ///< a rank could not provide its outputs: nothing was sent
};

}  // namespace ep::intranode
