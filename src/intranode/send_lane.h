// SPDX-License-Identifier: Apache-2.0
// One lane of the send role: loads each row once and stores it straight to its final places.
#pragma once

#include "intranode/arrivals.h"
#include "intranode/routing_view.h"
#include "primitives/ticket.h"

#include <cstddef>
#include <cstdint>

namespace ep::intranode {

/// One lane that sends rows.
template <primitives::Executor Exec, primitives::Coop G>
class SendLane {
 public:
  using Memory = typename Exec::Memory;

  EP_HOST_DEVICE SendLane(G group,
                          const primitives::OpContext<Exec>& op,
                          const DispatchParams& params,
                          const primitives::Lane& lane)
      : group_(group),
        op_(&op),
        params_(&params),
        routing_(params.routing),
        outputs_{&op},
        pipe_(Exec::make_row_pipe(group, lane, params.op)),
        tickets_(group,
                 op.ticket(layout::Ticket::kSend),
                 layout::div_up(num_tokens(), layout::kChunkTokens)),
        tally_(clear_tally(group, op, lane)) {}

  /// Starts as many loads as the pipe holds.
  EP_HOST_DEVICE void prefetch() {
    while (!pipe_.is_full() && advance())
      pipe_.load(token_, params_->x.row(token_), params_->x.row_bytes);
  }

  /// Sends all rows that this lane gets tickets for. False if the group gave up.
  EP_HOST_DEVICE bool run() {
    // [sync:announce-block] acquire, for the bulk stores that follow: the blocks may be written.
    pipe_.fence_acquired();
    while (!pipe_.is_empty()) {
      if (!op_->may_proceed()) return false;
      const std::int64_t token = pipe_.wait_front();
      send_token(token);
      pipe_.retire();
      if (params_->copies_at_receiver && is_end_of_chunk(token))
        publish_chunk(token / layout::kChunkTokens);
      prefetch();
    }
    pipe_.drain();
    add_arrivals(group_, *op_, op_->control().arrived, tally_);
    return true;
  }

 private:
  EP_HOST_DEVICE std::int64_t num_tokens() const {
    return params_->routing.tables.shape.num_tokens;
  }

  /// The next token of this lane in token_; false when there is none.
  EP_HOST_DEVICE bool advance() {
    if (token_ + 1 < chunk_end_) {
      ++token_;
      return true;
    }
    const std::int64_t chunk = tickets_.next(group_);
    if (chunk < 0) return false;
    token_ = chunk * layout::kChunkTokens;
    chunk_end_ = token_ + layout::kChunkTokens;
    if (chunk_end_ > num_tokens()) chunk_end_ = num_tokens();
    return true;
  }

  EP_HOST_DEVICE bool is_end_of_chunk(std::int64_t token) const {
    return token % layout::kChunkTokens == layout::kChunkTokens - 1 || token == num_tokens() - 1;
  }

  /// All ranks that own one of the token's experts, each once, in k order.
  EP_HOST_DEVICE void send_token(std::int64_t token) {
    const std::int32_t* experts = routing_.experts_of(token);
    for (int k = 0; k < routing_.topk(); ++k) {
      if (!routing_.is_first_of_rank(experts, k)) continue;
      const std::int32_t rank = params_->routing.rank_of[experts[k]];
      if (params_->has_expert_rows()) {
        send_expert_rows(rank, token);
      } else {
        send_row(rank, token, routing_.flat_row(rank, token));
      }
      if (group_.thread_rank() == 0) ++tally_[rank];
    }
  }

  EP_HOST_DEVICE void send_row(int rank, std::int64_t token, std::int64_t row) {
    if (row < 0) return;
    pipe_.store(outputs_.section(rank, layout::Section::kRows) + row * params_->x.row_bytes,
                params_->x.row_bytes);
    const RowInput& scales = params_->scales;
    if (scales.row_bytes > 0) {
      Exec::copy_bytes(group_,
                       outputs_.section(rank, layout::Section::kScales) + row * scales.row_bytes,
                       scales.row(token), scales.row_bytes);
    }
  }

  /// The pair's record, then its row: to the first place only if the receiver makes the copies.
  EP_HOST_DEVICE void send_expert_rows(int rank, std::int64_t token) {
    const bool is_first_only =
        params_->copies_at_receiver && (rank != op_->rank() || params_->returns_gradient);
    const std::int64_t pair = routing_.row_in(rank, token);
    auto* record = outputs_.template array<std::int32_t>(rank, layout::Section::kRecordRows) +
                   pair * routing_.topk();
    const std::int32_t* experts = routing_.experts_of(token);
    bool has_row = false;
    for (int k = 0; k < routing_.topk(); ++k) {
      const bool is_here = experts[k] >= 0 && params_->routing.rank_of[experts[k]] == rank;
      const std::int64_t row = is_here ? routing_.expert_row(experts[k], token) : -1;
      if (group_.thread_rank() == 0) Memory::store(record + k, static_cast<std::int32_t>(row));
      if (row < 0 || !routing_.is_first_of_expert(experts, k)) continue;
      if (!(has_row && is_first_only)) send_row(rank, token, row);
      has_row = true;
      if (params_->has_weights && group_.thread_rank() == 0) {
        Memory::store(outputs_.template array<float>(rank, layout::Section::kTopkWeights) + row,
                      summed_weight(experts, routing_.topk(), k, params_->topk_weights, token));
      }
    }
    if (group_.thread_rank() == 0) {
      Memory::store(outputs_.template array<std::int32_t>(rank, layout::Section::kSrcTokens) + pair,
                    static_cast<std::int32_t>(token));
    }
  }

  /// Rows and records of the chunk have landed everywhere: tells each peer which pairs they are.
  EP_HOST_DEVICE void publish_chunk(std::int64_t chunk) {
    pipe_.drain();
    group_.sync();
    primitives::for_each_strided(group_, op_->num_ranks(), [&](std::int64_t i) {
      const int peer = static_cast<int>(i);
      const std::int64_t first = routing_.pairs_before(peer, chunk * layout::kChunkTokens);
      const std::int64_t end = routing_.pairs_before(peer, (chunk + 1) * layout::kChunkTokens);
      const std::uint32_t value = layout::chunk_value(first, static_cast<int>(end - first));
      auto* flags = op_->template array_of<std::uint64_t>(peer, op_->control().chunk_flags);
      // [sync:chunk] release: rows and records of the chunk. Acquired in CopyLane::follow.
      Memory::store_release_sys(flags + op_->control().chunk_index(op_->rank(), chunk),
                                layout::tagged_word(op_->tag(), value));
    });
  }

  G group_;
  const primitives::OpContext<Exec>* op_;
  const DispatchParams* params_;
  RoutingView<Exec> routing_;
  BlockView<Exec> outputs_;
  typename Exec::RowPipe pipe_;
  primitives::TicketStream<Exec> tickets_;
  std::int64_t* tally_;
  std::int64_t token_ = -1;
  std::int64_t chunk_end_ = 0;
};

}  // namespace ep::intranode
