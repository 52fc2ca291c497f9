// SPDX-License-Identifier: Apache-2.0
// One lane that sends this rank's rows to its delegates: each row once per node, whoever needs it
// there.
#pragma once

#include "internode/chunk_steps.h"
#include "internode/host_side.h"
#include "primitives/row_pipe.h"
#include "primitives/ticket.h"

#include <cstddef>
#include <cstdint>

namespace ep::internode {

/// A ticket is one chunk of tokens and one node, chunks in ascending order: a lane that waits for a
/// slot waits for a delegate that needs nothing of a later one.
template <primitives::Executor Exec, primitives::Net N, primitives::Coop G>
class RailLane {
 public:
  RailLane(G group,
           const HostSide<Exec, N>& host,
           const intranode::DispatchParams& params,
           const primitives::Lane& lane)
      : group_(group),
        host_(&host),
        params_(&params),
        tables_(*host.rail, params.routing),
        pipe_(Exec::make_row_pipe(group, lane, params.op)) {}

  /// All tickets that this lane gets. False if the group gave up.
  bool run() {
    const int num_nodes = host_->rail->num_far_nodes();
    const std::int64_t num_chunks =
        layout::div_up(params_->routing.tables.shape.num_tokens, layout::kChunkTokens);
    primitives::TicketStream<Exec> tickets(group_, host_->op.ticket(layout::Ticket::kRail),
                                           num_chunks * num_nodes);
    for (std::int64_t i = tickets.next(group_); i >= 0; i = tickets.next(group_)) {
      if (!host_->op.may_proceed()) return false;
      // Ranks begin with different nodes.
      const int turn = static_cast<int>((i + host_->op.rank()) % num_nodes);
      if (!send_chunk(i / num_nodes, host_->rail->far_node(turn))) return false;
    }
    return true;
  }

 private:
  using Memory = typename Exec::Memory;

  bool send_chunk(std::int64_t chunk, int node) {
    const ChunkView chunks = tables_.of_node(node);
    const std::uint32_t bits = Memory::load(chunks.bits + chunk);
    if (bits == 0) return true;
    const layout::NetLayout& layout = host_->layout();
    const std::uint64_t number =
        number_of<Exec>(*host_->rail, layout.rows_sent, node, chunks, chunk);
    const int peer = host_->rail->nodes.rail_peer(host_->op.rank(), node);
    const std::uint32_t freed = layout.slot_signal(layout.signals.rows_freed, node, number);
    if (!await_slot(group_, *host_, peer, freed, number)) return false;
    const std::int64_t slot = layout.chunk(layout.rows_out, node, number);
    const std::int64_t bytes = gather(chunk, bits, host_->at(slot));
    const int index = host_->rail->nodes.delegate_index(host_->op.rank(), node);
    return primitives::net_put(
        group_, host_->net,
        {.peer = peer,
         .dst_offset = layout.chunk(layout.rows_in, index, number),
         .src_offset = slot,
         .bytes = bytes,
         .signal = {.strength = primitives::SignalStrength::kWeak,
                    .slot = layout.slot_signal(layout.signals.rows, index, number)}});
  }

  /// The chunk's rows, then their scales. Returns their bytes.
  std::int64_t gather(std::int64_t chunk, std::uint32_t bits, std::byte* slot) {
    const std::int64_t row_bytes = params_->x.row_bytes;
    const std::int64_t scale_bytes = params_->scales.row_bytes;
    const int num_rows = Exec::popcount(bits);
    std::byte* const scales = slot + num_rows * row_bytes;
    int row = 0;
    for (int i = 0; i < layout::kChunkTokens; ++i) {
      if ((bits >> i & 1U) == 0) continue;
      const std::int64_t token = chunk * layout::kChunkTokens + i;
      pipe_.load(token, {params_->x.row(token), row_bytes});
      pipe_.wait_front();
      pipe_.store(slot + row * row_bytes, {0, row_bytes});
      pipe_.retire();
      if (scale_bytes > 0) {
        Exec::copy_bytes(group_, scales + row * scale_bytes, params_->scales.row(token),
                         scale_bytes);
      }
      ++row;
    }
    pipe_.drain();  // before the network reads them
    return num_rows * (row_bytes + scale_bytes);
  }

  G group_;
  const HostSide<Exec, N>* host_;
  const intranode::DispatchParams* params_;
  RailTables tables_;
  typename Exec::RowPipe pipe_;
};

}  // namespace ep::internode
