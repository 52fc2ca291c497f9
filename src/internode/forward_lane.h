// SPDX-License-Identifier: Apache-2.0
// One lane of a delegate that forwards: rows that came over the network go to their final places on
// this node, as the send role inside a node stores its own.
#pragma once

#include "internode/chunk_steps.h"
#include "internode/delegate.h"
#include "internode/host_side.h"
#include "intranode/send_lane.h"
#include "primitives/ticket.h"

#include <cstddef>
#include <cstdint>

namespace ep::internode {

template <primitives::Executor Exec, primitives::Net N, primitives::Coop G>
class ForwardLane {
 public:
  ForwardLane(G group,
              const HostSide<Exec, N>& host,
              const DelegateView<Exec>& delegate,
              const intranode::DispatchParams& params,
              const primitives::Lane& lane)
      : group_(group),
        host_(&host),
        delegate_(delegate),
        params_(&params),
        scratch_(lane, params.routing.tables.shape),
        flat_(group, *delegate.op, params, scratch_.flat),
        experts_(group, *delegate.op, params, scratch_.experts),
        pipe_(Exec::make_row_pipe(group, lane, params.op)) {}

  /// All chunks that this lane gets tickets for. False if the group gave up.
  bool run() {
    const primitives::OpContext<Exec>& op = *delegate_.op;
    primitives::for_each_strided(group_, op.num_ranks(),
                                 [&](std::int64_t rank) { scratch_.tally[rank] = 0; });
    begin();
    // [sync:announce-block] acquire, for the bulk stores that follow: the blocks may be written.
    pipe_.fence_acquired();
    primitives::TicketStream<Exec> tickets(group_, op.ticket(layout::Ticket::kSend),
                                           delegate_.chunks.num_chunks);
    for (std::int64_t i = tickets.next(group_); i >= 0; i = tickets.next(group_)) {
      if (!op.may_proceed()) return false;
      if (!forward_chunk(i)) return false;
    }
    intranode::add_arrivals(group_, op, op.control().arrived, scratch_.tally);
    return true;
  }

 private:
  using Memory = typename Exec::Memory;

  void begin() {
    if (params_->has_expert_rows()) {
      experts_.begin();
    } else {
      flat_.locate_early();
      flat_.begin();
    }
  }

  bool forward_chunk(std::int64_t chunk) {
    const std::uint32_t bits = Memory::load(delegate_.chunks.bits + chunk);
    if (bits == 0) {
      forward_tokens(chunk, bits, nullptr);
      return true;
    }
    const layout::NetLayout& layout = host_->layout();
    const int peer = delegate_.op->rank();
    const std::uint64_t number = number_of<Exec>(*host_->rail, layout.rows_received,
                                                 delegate_.index, delegate_.chunks, chunk);
    const std::uint32_t arrived = layout.slot_signal(layout.signals.rows, delegate_.index, number);
    if (!await_chunk(group_, *host_, primitives::WaitSite::kNetRows, peer, arrived, number))
      return false;
    pipe_.fence_acquired();  // [sync:net-signal] acquire, for the bulk loads that follow
    const std::int64_t slot = layout.chunk(layout.rows_in, delegate_.index, number);
    forward_tokens(chunk, bits, host_->at(slot));
    const int home = host_->rail->node();
    return tell(group_, *host_, peer, layout.slot_signal(layout.signals.rows_freed, home, number));
  }

  /// Also tokens without a row have pairs, if all their rows are dropped.
  void forward_tokens(std::int64_t chunk, std::uint32_t bits, const std::byte* slot) {
    const std::int64_t first = chunk * layout::kChunkTokens;
    const std::int64_t left = params_->routing.tables.shape.num_tokens - first;
    const int count = left < layout::kChunkTokens ? static_cast<int>(left) : layout::kChunkTokens;
    const int num_rows = Exec::popcount(bits);
    int row = 0;
    for (int i = 0; i < count; ++i) {
      look_up(first + i);
      if ((bits >> i & 1U) != 0) send(first + i, parts_of(slot, num_rows, row++));
      if (!params_->copies_at_receiver) continue;
      pipe_.drain();
      experts_.publish_drained(first + i);
    }
    pipe_.drain();
  }

  void look_up(std::int64_t token) {
    if (params_->has_expert_rows()) {
      experts_.look_up(token, scratch_.tally);
    } else {
      flat_.look_up(token, scratch_.tally);
    }
  }

  primitives::RowParts parts_of(const std::byte* slot, int num_rows, int row) const {
    const std::int64_t row_bytes = params_->x.row_bytes;
    const std::int64_t scale_bytes = params_->scales.row_bytes;
    primitives::RowParts parts{slot + row * row_bytes, row_bytes};
    if (scale_bytes > 0) {
      parts.tail = slot + num_rows * row_bytes + row * scale_bytes;
      parts.tail_bytes = scale_bytes;
    }
    return parts;
  }

  void send(std::int64_t token, const primitives::RowParts& parts) {
    pipe_.load(token, parts);
    pipe_.wait_front();
    if (params_->has_expert_rows()) {
      experts_.send(pipe_, token);
    } else {
      flat_.send(pipe_, token);
    }
    pipe_.retire();
  }

  G group_;
  const HostSide<Exec, N>* host_;
  DelegateView<Exec> delegate_;
  const intranode::DispatchParams* params_;
  intranode::SendScratch scratch_;
  intranode::FlatSender<Exec, G> flat_;
  intranode::ExpertSender<Exec, G> experts_;
  typename Exec::RowPipe pipe_;
};

}  // namespace ep::internode
