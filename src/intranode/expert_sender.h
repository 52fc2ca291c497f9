// SPDX-License-Identifier: Apache-2.0
// kExpertMajor: the rows of a lane of the send role; with CopyWay::kReceiver it also tells the
// peers which chunks have landed, and never stops its rows for it.
#pragma once

#include "intranode/expert_ticket.h"

#include <cstddef>
#include <cstdint>

namespace ep::intranode {

template <primitives::Executor Exec, primitives::Coop G>
class ExpertSender {
 public:
  using Pipe = typename Exec::RowPipe;

  EP_HOST_DEVICE ExpertSender(G group,
                              const primitives::OpContext<Exec>& op,
                              const DispatchParams& params,
                              const ExpertScratch& scratch)
      : group_(group), op_(&op), params_(&params), ticket_(group, op, params, scratch) {}

  /// Precondition: the verdict is there.
  EP_HOST_DEVICE void begin() { ticket_.look_up_blocks(); }

  /// Finds the places of the token's row. With the first token of a ticket it does so for all of
  /// them, stores their records and weights, and adds their pairs to `tally`, [num_ranks].
  EP_HOST_DEVICE void look_up(std::int64_t token, std::int64_t* tally) {
    if (token % params_->send_ticket_tokens() == 0) ticket_.open(token, tally);
  }

  /// Stores the row at the front of the pipe to its places.
  EP_HOST_DEVICE void send(Pipe& pipe, std::int64_t token) {
    const int num_places = ticket_.num_places(token);
    for (int i = 0; i < num_places; ++i) send_to(pipe, token, ticket_.place_of(token, i));
  }

  /// After the row was retired: publishes the chunk before once it has landed, while this row is
  /// still on its way.
  EP_HOST_DEVICE void publish_landed(Pipe& pipe, std::int64_t token) {
    if (!params_->copies_at_receiver) return;
    if (landing_ >= 0 && ++num_behind_ == kRowsBehind) {
      pipe.template await_landed<kRowsBehind>();
      publish();
    }
    if (!is_end_of_chunk(token)) return;
    if (landing_ >= 0) {  // this is a last chunk of fewer tokens than kRowsBehind
      pipe.drain();
      publish();
    }
    landing_ = token / layout::kDispatchChunkTokens;
    num_behind_ = 0;
    ticket_.note_landed();
  }

  /// As publish_landed, for a lane that stops at the end of each chunk. Precondition: the pipe is
  /// drained.
  EP_HOST_DEVICE void publish_drained(std::int64_t token) {
    if (!params_->copies_at_receiver || !is_end_of_chunk(token)) return;
    landing_ = token / layout::kDispatchChunkTokens;
    ticket_.note_landed();
    publish();
  }

  /// Precondition: the pipe is drained.
  EP_HOST_DEVICE void publish_last() {
    if (landing_ >= 0) publish();
  }

 private:
  /// Rows that are still on their way when a lane waits for those of a chunk to land: they keep the
  /// wire busy meanwhile, and each of them delays the chunk's word.
  static constexpr int kRowsBehind = 1;
  static_assert(kRowsBehind <= layout::kDispatchChunkTokens);

  EP_HOST_DEVICE bool is_end_of_chunk(std::int64_t token) const {
    return (token + 1) % layout::kDispatchChunkTokens == 0 ||
           token + 1 == params_->routing.tables.shape.num_tokens;
  }

  EP_HOST_DEVICE void send_to(Pipe& pipe, std::int64_t token, const ExpertScratch::Place& place) {
    const std::int64_t row_bytes = params_->x.row_bytes;
    pipe.store(place.row, {0, row_bytes});
    const RowInput& scales = params_->scales;
    if (scales.row_bytes == 0) return;
    if (params_->pipes_scales) {
      pipe.store(place.scales, {row_bytes, scales.row_bytes});
    } else {
      Exec::copy_bytes(group_, place.scales, scales.row(token), scales.row_bytes);
    }
  }

  /// Rows and records of the chunk have landed everywhere: tells each peer which pairs they are.
  EP_HOST_DEVICE void publish() {
    group_.sync();
    const std::int64_t at = op_->control().chunk_flag_index(op_->rank(), landing_);
    primitives::for_each_peer(group_, *op_, [&](int peer) {
      auto* flags = op_->template array_of<std::uint64_t>(peer, op_->control().chunk_flags);
      // [sync:chunk] release: rows and records of the chunk. Acquired in CopyLane.
      Exec::Memory::store_release_sys(flags + at,
                                      layout::tagged_word(op_->tag(), ticket_.landed(peer)));
    });
    landing_ = -1;
  }

  G group_;
  const primitives::OpContext<Exec>* op_;
  const DispatchParams* params_;
  ExpertTicket<Exec, G> ticket_;
  std::int64_t landing_ = -1;  // the chunk that waits to be published, -1: none
  int num_behind_ = 0;         // rows retired since its last
};

}  // namespace ep::intranode
