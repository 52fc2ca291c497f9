// SPDX-License-Identifier: Apache-2.0
// What the host tells the roles of a group of several nodes, beside the parameters of the path
// inside a node; plain data.
#pragma once

#include "intranode/combine_params.h"
#include "intranode/dispatch_params.h"
#include "layout/net_layout.h"
#include "layout/nodes.h"
#include "layout/rail_tables.h"

#include <cstddef>
#include <cstdint>

namespace ep::internode {

struct RailParams {
  layout::NodeMap nodes;
  layout::NetLayout net;
  std::byte* segment = nullptr;  ///< segment 0 of this rank
  int rank = 0;
  int num_delegates = 0;          ///< of this rank
  std::uint64_t first_epoch = 1;  ///< of the group

  EP_HOST_DEVICE int node() const { return nodes.node_of[rank]; }
  /// A node that is not this rank's: i in [0, num_nodes - 1).
  EP_HOST_DEVICE int far_node(int i) const { return i < node() ? i : i + 1; }
  EP_HOST_DEVICE int num_far_nodes() const { return nodes.num_nodes - 1; }

  /// Messages that a delegate has had when that of `epoch` is here: each operation has one.
  EP_HOST_DEVICE std::uint64_t num_messages(std::uint64_t epoch) const {
    return epoch - first_epoch + 1;
  }
  EP_HOST_DEVICE std::uint64_t* counter(std::int64_t array, int lane) const {
    return layout::array_at<std::uint64_t>(segment, array) + lane;
  }
};

/// Which tokens of a rank's chunks have a row on one node, see layout::ChunkTable.
struct ChunkView {
  std::uint8_t* bits;
  std::int32_t* before;
  std::int64_t num_chunks;
};

/// Tables in a handle's rail block.
class RailTables {
 public:
  EP_HOST_DEVICE RailTables(const RailParams& rail, const intranode::RoutingParams& routing)
      : layout_(layout::make_rail_table_layout({.tables = routing.tables.shape,
                                                .num_nodes = rail.nodes.num_nodes,
                                                .num_delegates = rail.num_delegates,
                                                .max_tokens = rail.net.shape.max_tokens})),
        block_(routing.rail_block) {}

  /// Of this rank's tokens.
  EP_HOST_DEVICE ChunkView of_node(int node) const {
    return view(layout_.own, node, layout_.own.num_chunks);
  }
  /// Of the tokens of a delegate's rank, on this node.
  EP_HOST_DEVICE ChunkView of_delegate(int index, std::int64_t num_tokens) const {
    return view(layout_.delegated, index, layout::div_up(num_tokens, layout::kChunkTokens));
  }
  /// Null where the host's call has no tables.
  EP_HOST_DEVICE std::byte* delegate_block(int index) const {
    return block_ == nullptr ? nullptr : block_ + layout_.tables + index * layout_.table_bytes;
  }

 private:
  EP_HOST_DEVICE ChunkView view(const layout::ChunkTable& table,
                                int lane,
                                std::int64_t num_chunks) const {
    return {.bits = layout::array_at<std::uint8_t>(block_, table.bits) + lane * table.num_chunks,
            .before = layout::array_at<std::int32_t>(block_, table.before) +
                      lane * (table.num_chunks + 1),
            .num_chunks = num_chunks};
  }

  layout::RailTableLayout layout_;
  std::byte* block_;
};

}  // namespace ep::internode
