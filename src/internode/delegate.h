// SPDX-License-Identifier: Apache-2.0
// A delegate: the operation of a rank of another node, run on this one by the rank that stands in
// for it. Its lanes run the roles of the path inside a node under that rank's number, with a
// control region and tables of its own.
#pragma once

#include "internode/message_steps.h"
#include "internode/rail_params.h"
#include "intranode/announce_steps.h"

#include <cstdint>

namespace ep::internode {

/// What a lane of a delegate works on.
template <primitives::Executor Exec>
struct DelegateView {
  int index;
  const primitives::OpContext<Exec>* op;  ///< of the rank behind it
  ChunkView chunks;
};

/// Whether two ranks call the same.
EP_HOST_DEVICE inline bool is_same_call(const layout::OpAnnouncement& a,
                                        const layout::OpAnnouncement& b) {
  for (int field = 0; field < layout::kNumAgreedFields; ++field) {
    if (a.fields[field] != b.fields[field]) return false;
  }
  return true;
}

/// A place behind the delegates' control regions, as peers find it from a delegate's own.
EP_HOST_DEVICE inline layout::Location location_from_delegate(const layout::NetLayout& net,
                                                              int index,
                                                              std::int64_t offset) {
  const std::int64_t distance = offset - net.delegate(index);
  return {.segment = 0,
          .offset_units = static_cast<std::uint32_t>(distance / layout::kLocationUnit)};
}

/// The operation as the rank behind the delegate calls it, with the memory of this one.
EP_HOST_DEVICE inline primitives::OpParams delegate_op(const primitives::OpParams& host,
                                                       const RailParams& rail,
                                                       int index,
                                                       const layout::NetMessage& message) {
  primitives::OpParams op = host;
  op.rank = rail.nodes.delegate_rank(rail.rank, index);
  op.own = rail.segment + rail.net.delegate(index);
  op.board = host.own;
  op.announcement = message.op;
  op.rejection = message.rejection;
  op.report = nullptr;
  return op;
}

EP_HOST_DEVICE inline intranode::RoutingParams delegate_routing(
    const intranode::RoutingParams& host,
    const RailParams& rail,
    int index,
    std::int64_t num_tokens) {
  intranode::RoutingParams routing = host;
  layout::TableShape shape = host.tables.shape;
  shape.num_tokens = num_tokens;
  routing.tables = layout::make_table_layout(shape);
  routing.block = RailTables(rail, host).delegate_block(index);
  routing.num_local_experts = 0;
  routing.rail_block = nullptr;
  return routing;
}

/// An array behind a message, one row per token.
inline intranode::StridedInput message_table(const void* data, std::int64_t topk) {
  return {.data = data, .row_stride = topk, .col_stride = 1};
}

/// A dispatch. `num_lanes`: of the delegate.
inline intranode::DispatchParams delegate_params(const intranode::DispatchParams& host,
                                                 const RailParams& rail,
                                                 int index,
                                                 const ReceivedMessage& received,
                                                 int num_lanes) {
  const layout::NetMessage& message = received.head;
  const std::int64_t topk = message.op[layout::OpField::kTopk];
  intranode::DispatchParams params = host;
  params.op = delegate_op(host.op, rail, index, message);
  params.op.num_lanes = num_lanes;
  const bool is_same = is_same_call(message.op, host.op.announcement);
  params.routing = delegate_routing(host.routing, rail, index,
                                    is_same ? message.op[layout::OpField::kNumTokens] : 0);
  // Tables of another call would be read in the wrong places; all ranks will refuse.
  if (!is_same && !params.is_fresh) params.routing.block = nullptr;
  params.counts_tokens = is_same && message.has_ids != 0;
  params.topk_idx = message_table(received.ids, topk);
  params.input_idx_bytes = sizeof(std::int32_t);
  params.topk_weights = message_table(received.weights, topk);
  params.pipes_scales = params.scales.row_bytes > 0;
  params.ticket_tokens = layout::kChunkTokens;
  params.knows_block = message.has_block != 0;
  params.block = message.block;
  params.block_rejection = message.block_rejection;
  return params;
}

/// A combine.
inline intranode::CombineParams delegate_params(const intranode::CombineParams& host,
                                                const RailParams& rail,
                                                int index,
                                                const ReceivedMessage& received,
                                                int num_lanes) {
  const layout::NetMessage& message = received.head;
  const std::int64_t num_tokens = message.op[layout::OpField::kNumTokens];
  const std::int64_t topk = message.op[layout::OpField::kTopk];
  intranode::CombineParams params = host;
  params.op = delegate_op(host.op, rail, index, message);
  params.op.num_lanes = num_lanes;
  const bool is_same = is_same_call(message.op, host.op.announcement);
  params.routing = delegate_routing(host.routing, rail, index, is_same ? num_tokens : 0);
  if (!is_same) params.routing.block = nullptr;  // as above
  params.rows = {};
  params.src_tokens = nullptr;
  params.record_rows = nullptr;
  params.side = {};
  params.bias = {};
  params.out = nullptr;  // of side_out only counts whether there is one
  params.is_staged = false;
  params.weights = {.input = message_table(received.weights, topk),
                    .num_rows = num_tokens,
                    .num_cols = topk,
                    .arena_copy = nullptr};
  params.block = message.block;
  const std::int64_t weights_at =
      layout::bytes_of(received.weights) - static_cast<const std::byte*>(rail.segment);
  if (message.has_weights != 0) {
    params.block.place(layout::Section::kTopkWeights,
                       location_from_delegate(rail.net, index, weights_at));
  }
  return params;
}

}  // namespace ep::internode
