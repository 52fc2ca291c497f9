// SPDX-License-Identifier: Apache-2.0
// Which tokens of each chunk have a row on a node: both ends of a rail compute it alike.
#pragma once

#include "internode/rail_params.h"
#include "intranode/routing_view.h"
#include "primitives/coop.h"
#include "primitives/op_context.h"

#include <cstdint>

namespace ep::internode {

/// Ranks [first, end).
struct RankRange {
  int first;
  int end;

  EP_HOST_DEVICE bool contains(int rank) const { return rank >= first && rank < end; }
};

/// Whether the token has a row at one of the ranks that is not dropped.
template <primitives::Executor Exec>
EP_HOST_DEVICE bool has_row(const intranode::RoutingView<Exec>& routing,
                            RankRange ranks,
                            std::int64_t token) {
  const std::int32_t* experts = routing.experts_of(token);
  for (int k = 0; k < routing.topk(); ++k) {
    const std::int32_t rank = routing.rank_of(experts[k]);
    if (!ranks.contains(rank)) continue;
    const std::int64_t row = routing.shape().has_expert_rows ? routing.expert_row(experts[k], token)
                                                             : routing.flat_row(rank, token);
    if (row >= 0) return true;
  }
  return false;
}

/// Fills the table of one node. One lane.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void group_tokens(G group,
                                 const intranode::RoutingView<Exec>& routing,
                                 RankRange ranks,
                                 const ChunkView& chunks) {
  using Memory = typename Exec::Memory;
  const std::int64_t num_tokens = routing.shape().num_tokens;
  primitives::for_each_strided(group, chunks.num_chunks, [&](std::int64_t chunk) {
    std::uint32_t bits = 0;
    for (int i = 0; i < layout::kChunkTokens; ++i) {
      const std::int64_t token = chunk * layout::kChunkTokens + i;
      if (token < num_tokens && has_row(routing, ranks, token)) bits |= 1U << i;
    }
    Memory::store(chunks.bits + chunk, static_cast<std::uint8_t>(bits));
  });
  group.sync();
  if (group.thread_rank() != 0) return;
  std::int32_t before = 0;
  for (std::int64_t chunk = 0; chunk < chunks.num_chunks; ++chunk) {
    Memory::store(chunks.before + chunk, before);
    if (Memory::load(chunks.bits + chunk) != 0) ++before;
  }
  Memory::store(chunks.before + chunks.num_chunks, before);
}

/// The row of a token among those of its chunk.
template <primitives::Executor Exec>
EP_HOST_DEVICE int row_in_chunk(std::uint32_t bits, std::int64_t token) {
  const std::uint32_t bit = 1U << (token % layout::kChunkTokens);
  return Exec::popcount(bits & (bit - 1));
}

}  // namespace ep::internode
