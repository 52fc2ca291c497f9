// SPDX-License-Identifier: Apache-2.0
// The part of a handle that only groups of several nodes have: which tokens go to which node, and
// the tables of the delegates.
//
// Tokens are taken in chunks of 8. `bits` says which tokens of a chunk have a row on the node that
// is not dropped, `before` how many chunks before it have one: the number of the chunk among those
// that travel. Both ends of a rail compute the same from the counts of all ranks.
#pragma once

#include "layout/control.h"
#include "layout/regions.h"
#include "layout/routing_tables.h"

#include <cstdint>

namespace ep::layout {

/// Offsets in bytes in a block.
struct ChunkTable {
  std::int64_t num_chunks = 0;
  std::int64_t bits = 0;    // u8[lanes][num_chunks]
  std::int64_t before = 0;  // int32[lanes][num_chunks + 1]
};

struct RailTableLayout {
  /// By node.
  ChunkTable own;
  /// By delegate, of the node itself; sized for max_tokens.
  ChunkTable delegated;
  std::int64_t table_bytes = 0;  // of one delegate's tables
  std::int64_t tables = 0;       // [delegates] TableLayout
  std::int64_t total_bytes = 0;
};

struct RailTableShape {
  TableShape tables{};  ///< of this rank
  int num_nodes = 1;
  int num_delegates = 0;
  std::int64_t max_tokens = 0;
};

EP_HOST_DEVICE constexpr ChunkTable add_chunk_table(Regions& regions,
                                                    std::int64_t lanes,
                                                    std::int64_t num_tokens) {
  ChunkTable table;
  table.num_chunks = div_up(num_tokens, kChunkTokens);
  table.bits = regions.add<std::uint8_t>(lanes * table.num_chunks);
  table.before = regions.add<std::int32_t>(lanes * (table.num_chunks + 1));
  return table;
}

EP_HOST_DEVICE constexpr RailTableLayout make_rail_table_layout(const RailTableShape& shape) {
  RailTableLayout layout;
  Regions regions;
  TableShape of_delegate = shape.tables;
  of_delegate.num_tokens = shape.max_tokens;
  layout.own = add_chunk_table(regions, shape.num_nodes, shape.tables.num_tokens);
  layout.delegated = add_chunk_table(regions, shape.num_delegates, shape.max_tokens);
  layout.table_bytes = make_table_layout(of_delegate).total_bytes;
  layout.tables = regions.add_bytes(shape.num_delegates * layout.table_bytes);
  layout.total_bytes = regions.total_bytes();
  return layout;
}

}  // namespace ep::layout
