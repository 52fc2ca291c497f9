// SPDX-License-Identifier: Apache-2.0
// The sums of a token that come from other nodes: one row of each, in chunks.
#pragma once

#include "internode/chunk_steps.h"
#include "internode/host_side.h"
#include "intranode/combine_params.h"
#include "intranode/routing_view.h"
#include "primitives/row_reducer.h"

#include <cstddef>
#include <cstdint>

namespace ep::internode {

/// Of one lane of the pull role, whose tickets are whole chunks: it frees a chunk with the last of
/// its tokens. At most two tokens are between add_terms_before and finish_token.
template <primitives::Executor Exec, primitives::Net N, primitives::Coop G>
class FarTerms {
 public:
  static constexpr bool kExist = true;

  FarTerms(G group, const HostSide<Exec, N>& host, const intranode::CombineParams& params)
      : group_(group),
        host_(&host),
        params_(&params),
        routing_(params.routing),
        tables_(*host.rail, params.routing) {}

  /// The next token: terms of the nodes before this rank's. They may not be here yet.
  void add_terms_before(typename Exec::RowReducer::Sum& sum, std::int64_t token) {
    tokens_[1] = tokens_[0];
    tokens_[0] = token;
    add_terms(sum, token, [&](int node) { return node < host_->rail->node(); });
  }
  /// The same token: terms of the nodes behind this rank's.
  void add_terms_behind(typename Exec::RowReducer::Sum& sum, std::int64_t token) {
    add_terms(sum, token, [&](int node) { return node > host_->rail->node(); });
  }

  /// Whether the terms of the token that was added last are here.
  bool are_here() {
    return for_each_node(tokens_[0], [&](const Chunk& chunk) {
      return host_->net.net->signal_value(arrived(chunk)) >=
             host_->layout().uses_before(chunk.number) + 1;
    });
  }
  /// Waits for them. False if the group gave up.
  bool await() {
    return for_each_node(tokens_[0], [&](const Chunk& chunk) {
      return await_chunk(group_, *host_, primitives::WaitSite::kNetSums, peer_on(chunk.node),
                         arrived(chunk), chunk.number);
    });
  }

  /// The sum of the oldest token is written. False if the group gave up.
  bool finish_token() {
    const std::int64_t token = tokens_[1] >= 0 ? tokens_[1] : tokens_[0];
    (tokens_[1] >= 0 ? tokens_[1] : tokens_[0]) = -1;
    if (params_->side_out != nullptr) take_gradients(token);
    const bool is_last =
        (token + 1) % layout::kChunkTokens == 0 || token + 1 == routing_.shape().num_tokens;
    return !is_last || free_chunks(token);
  }

 private:
  using Memory = typename Exec::Memory;

  struct Chunk {
    int node;
    std::uint32_t bits;
    std::uint64_t number;
  };

  /// Terms of the nodes for which is_meant(node), in ascending order; each crosses a link.
  template <class IsMeant>
  void add_terms(typename Exec::RowReducer::Sum& sum, std::int64_t token, IsMeant is_meant) const {
    for_each_node(token, [&](const Chunk& chunk) {
      const std::uint32_t bit = 1U << (token % layout::kChunkTokens);
      if ((chunk.bits & bit) == 0 || !is_meant(chunk.node)) return true;
      sum.add(row(chunk, token), 1.0F);
      sum.end_hop();
      return true;
    });
  }

  /// step(chunk) for every node that has a chunk of the token's; stops where one is false.
  template <class Step>
  bool for_each_node(std::int64_t token, Step step) const {
    const std::int64_t chunk = token / layout::kChunkTokens;
    for (int i = 0; i < host_->rail->num_far_nodes(); ++i) {
      const int node = host_->rail->far_node(i);
      const ChunkView chunks = tables_.of_node(node);
      const std::uint32_t bits = Memory::load(chunks.bits + chunk);
      if (bits == 0) continue;
      const std::uint64_t number =
          number_of<Exec>(*host_->rail, host_->layout().sums_received, node, chunks, chunk);
      if (!step(Chunk{node, bits, number})) return false;
    }
    return true;
  }

  int peer_on(int node) const { return host_->rail->nodes.rail_peer(host_->op.rank(), node); }
  std::uint32_t arrived(const Chunk& chunk) const {
    const layout::NetLayout& layout = host_->layout();
    return layout.slot_signal(layout.signals.sums, chunk.node, chunk.number);
  }
  const std::byte* slot(const Chunk& chunk) const {
    const layout::NetLayout& layout = host_->layout();
    return host_->at(layout.chunk(layout.sums_in, chunk.node, chunk.number));
  }
  std::int64_t row_bytes() const { return primitives::row_bytes_of(params_->sum); }
  const std::byte* row(const Chunk& chunk, std::int64_t token) const {
    return slot(chunk) + row_in_chunk<Exec>(chunk.bits, token) * row_bytes();
  }

  /// The router's gradient of the experts on other nodes, which travels behind the rows.
  void take_gradients(std::int64_t token) const {
    const int topk = routing_.topk();
    for_each_node(token, [&](const Chunk& chunk) {
      if ((chunk.bits >> (token % layout::kChunkTokens) & 1U) == 0) return true;
      const int num_rows = Exec::popcount(chunk.bits);
      const auto* values = layout::array_at<float>(
          slot(chunk),
          num_rows * row_bytes() + std::int64_t{4} * topk * row_in_chunk<Exec>(chunk.bits, token));
      const layout::NodeMap& nodes = host_->rail->nodes;
      const RankRange ranks{nodes.first_rank(chunk.node), nodes.end_rank(chunk.node)};
      primitives::for_each_strided(group_, topk, [&](std::int64_t k) {
        if (!ranks.contains(routing_.rank_of(routing_.experts_of(token)[k]))) return;
        Memory::store(params_->side_out + token * topk + k, Memory::load(values + k));
      });
      return true;
    });
  }

  bool free_chunks(std::int64_t token) const {
    return for_each_node(token, [&](const Chunk& chunk) {
      const layout::NetLayout& layout = host_->layout();
      const int peer = peer_on(chunk.node);
      const int index = host_->rail->nodes.delegate_index(host_->op.rank(), chunk.node);
      return tell(group_, *host_, peer,
                  layout.slot_signal(layout.signals.sums_freed, index, chunk.number));
    });
  }

  G group_;
  const HostSide<Exec, N>* host_;
  const intranode::CombineParams* params_;
  intranode::RoutingView<Exec> routing_;
  RailTables tables_;
  std::int64_t tokens_[2] = {-1, -1};  // added and not finished, the newest first
};

}  // namespace ep::internode
