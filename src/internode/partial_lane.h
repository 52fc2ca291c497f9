// SPDX-License-Identifier: Apache-2.0
// One lane of a delegate that sums: the rows of this node that belong to a token become one row,
// which goes to the token's rank.
#pragma once

#include "internode/chunk_steps.h"
#include "internode/delegate.h"
#include "internode/host_side.h"
#include "intranode/pull_terms.h"
#include "primitives/slot_ring.h"
#include "primitives/ticket.h"

#include <cstddef>
#include <cstdint>

namespace ep::internode {

/// Terms: intranode::FlatTerms or ExpertTerms.
template <class Terms, primitives::Executor Exec, primitives::Net N, primitives::Coop G>
class PartialLane {
 public:
  PartialLane(G group,
              const HostSide<Exec, N>& host,
              const DelegateView<Exec>& delegate,
              const intranode::CombineParams& params,
              const primitives::Lane& lane)
      : group_(group),
        host_(&host),
        delegate_(delegate),
        params_(&params),
        routing_(params.routing),
        ring_(*delegate.op),
        reducer_(Exec::make_row_reducer(group, lane, params.op, params.sum)),
        scratch_(lane, params.routing.tables.shape),
        terms_(group, *delegate.op, params, scratch_) {}

  /// All chunks that this lane gets tickets for. False if the group gave up.
  bool run() {
    const primitives::OpContext<Exec>& op = *delegate_.op;
    // [sync:announce-block] acquire, for the bulk loads that follow.
    reducer_.fence_acquired();
    has_ring_ = terms_.note_owners();
    primitives::TicketStream<Exec> tickets(group_, op.ticket(layout::Ticket::kPull),
                                           delegate_.chunks.num_chunks);
    for (std::int64_t i = tickets.next(group_); i >= 0; i = tickets.next(group_)) {
      if (!op.may_proceed()) return false;
      if (!sum_chunk(i)) return false;
    }
    primitives::for_each_strided(group_, op.num_ranks(), [&](std::int64_t rank) {
      scratch_.tally[rank] = op.is_peer(static_cast<int>(rank)) ? num_pulled_ : 0;
    });
    intranode::add_arrivals(group_, op, op.control().pulled, scratch_.tally);
    return true;
  }

 private:
  using Memory = typename Exec::Memory;

  bool sum_chunk(std::int64_t chunk) {
    const std::uint32_t bits = Memory::load(delegate_.chunks.bits + chunk);
    if (bits == 0) return drop_tokens(chunk);
    const layout::NetLayout& layout = host_->layout();
    const int peer = delegate_.op->rank();
    const std::uint64_t number =
        number_of<Exec>(*host_->rail, layout.sums_sent, delegate_.index, delegate_.chunks, chunk);
    const std::uint32_t freed =
        layout.slot_signal(layout.signals.sums_freed, delegate_.index, number);
    if (!await_slot(group_, *host_, peer, freed, number)) return false;
    const std::int64_t slot = layout.chunk(layout.sums_out, delegate_.index, number);
    const int num_rows = Exec::popcount(bits);
    if (!sum_tokens(chunk, bits, host_->at(slot))) return false;
    const int home = host_->rail->node();
    return primitives::net_put(
        group_, host_->net,
        {.peer = peer,
         .dst_offset = layout.chunk(layout.sums_in, home, number),
         .src_offset = slot,
         .bytes = num_rows * (row_bytes() + tail_bytes()),
         .signal = {.strength = primitives::SignalStrength::kWeak,
                    .slot = layout.slot_signal(layout.signals.sums, home, number)}});
  }

  /// No token of the chunk has a sum; rows in the ring must be freed all the same.
  bool drop_tokens(std::int64_t chunk) { return sum_tokens(chunk, 0, nullptr); }

  bool sum_tokens(std::int64_t chunk, std::uint32_t bits, std::byte* slot) {
    const std::int64_t first = chunk * layout::kChunkTokens;
    const std::int64_t left = routing_.shape().num_tokens - first;
    const int count = left < layout::kChunkTokens ? static_cast<int>(left) : layout::kChunkTokens;
    const int num_rows = Exec::popcount(bits);
    int row = 0;
    for (int i = 0; i < count; ++i) {
      terms_.find(first + i, 1, has_ring_);
      const bool has_sum = (bits >> i & 1U) != 0;
      if (!sum_token(has_sum ? slot + row * row_bytes() : nullptr)) return false;
      if (!has_sum) continue;
      if (has_gradient()) {
        gather_gradient(first + i,
                        layout::array_at<float>(slot, num_rows * row_bytes() + row * tail_bytes()));
      }
      ++row;
    }
    reducer_.drain(group_);
    num_pulled_ += count;
    return true;
  }

  /// The token that was found last. `out` null: only frees its rows of the ring.
  bool sum_token(std::byte* out) {
    if (has_ring_ && !ring_.await_all(group_, scratch_.pairs)) return false;
    if (out != nullptr) {
      reducer_.fence_acquired();  // [sync:ring-ready] acquire, for the bulk loads that follow
      auto sum = reducer_.begin(group_);
      sum.out = out;
      terms_.add_terms(sum, 0);
      reducer_.load(group_, sum);
      reducer_.finish(group_, sum);
    }
    if (!has_ring_) return true;
    reducer_.drain(group_);
    ring_.release(group_, scratch_.pairs);
    return true;
  }

  void gather_gradient(std::int64_t token, float* values) const {
    const std::int32_t* experts = routing_.experts_of(token);
    primitives::for_each_strided(group_, routing_.topk(), [&](std::int64_t i) {
      const int k = static_cast<int>(i);
      const bool is_here = delegate_.op->is_peer(routing_.rank_of(experts[k]));
      Memory::store(values + k, is_here ? terms_.side_value(experts, k, token) : 0.0F);
    });
  }

  bool has_gradient() const { return params_->side_out != nullptr; }
  std::int64_t row_bytes() const { return primitives::row_bytes_of(params_->sum); }
  std::int64_t tail_bytes() const { return has_gradient() ? std::int64_t{4} * routing_.topk() : 0; }

  G group_;
  const HostSide<Exec, N>* host_;
  DelegateView<Exec> delegate_;
  const intranode::CombineParams* params_;
  intranode::RoutingView<Exec> routing_;
  primitives::SlotRing<Exec> ring_;
  typename Exec::RowReducer reducer_;
  intranode::PullScratch scratch_;
  Terms terms_;
  bool has_ring_ = false;
  std::int64_t num_pulled_ = 0;
};

}  // namespace ep::internode
