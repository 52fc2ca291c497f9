// SPDX-License-Identifier: Apache-2.0
// One lane of the push role: an owner reduces the rows of each pair and sends one row through the
// ring.
#pragma once

#include "intranode/arrivals.h"
#include "intranode/combine_steps.h"
#include "intranode/copy_steps.h"
#include "primitives/slot_ring.h"
#include "primitives/ticket.h"

#include <cstddef>
#include <cstdint>

namespace ep::intranode {

template <primitives::Executor Exec, primitives::Coop G>
class PushLane {
 public:
  using Memory = typename Exec::Memory;

  EP_HOST_DEVICE PushLane(G group,
                          const primitives::OpContext<Exec>& op,
                          const CombineParams& params,
                          const primitives::Lane& lane)
      : group_(group),
        op_(&op),
        params_(&params),
        routing_(params.routing),
        blocks_{&op},
        ring_(op),
        reducer_(Exec::make_row_reducer(group, lane, params.op, params.sum)) {}

  /// All chunks that this lane gets tickets for, in ascending chunk, then source: the order in
  /// which every reader needs them, so a writer that waits for a slot never holds back the chunk
  /// that would free it (README.md). False if the group gave up.
  EP_HOST_DEVICE bool run() {
    const int num_ranks = op_->num_ranks();
    std::int64_t max_chunks = 0;
    for (int src = 0; src < num_ranks; ++src) {
      if (routing_.chunks_of(src) > max_chunks) max_chunks = routing_.chunks_of(src);
    }
    primitives::TicketStream<Exec> tickets(group_, op_->ticket(layout::Ticket::kPush),
                                           max_chunks * num_ranks);
    for (std::int64_t i = tickets.next(group_); i >= 0; i = tickets.next(group_)) {
      const int reader = static_cast<int>((op_->rank() + i) % num_ranks);
      const std::int64_t chunk = i / num_ranks;
      if (reader == op_->rank() || chunk >= routing_.chunks_of(reader)) continue;
      if (!op_->may_proceed() || !push_chunk(reader, chunk)) return false;
    }
    return true;
  }

 private:
  /// False if the group gave up.
  EP_HOST_DEVICE bool push_chunk(int reader, std::int64_t chunk) {
    const std::int64_t base = routing_.pair_bases()[reader];
    std::int64_t end = base + routing_.pairs_from()[reader];
    const std::int64_t kept = routing_.capacities()[op_->rank()];
    if (!params_->has_expert_rows() && end > kept) end = kept;
    const std::int64_t first_token = chunk * layout::kChunkTokens;
    const std::int64_t first = first_pair_of(params_->src_tokens, base, end, first_token);
    if (first >= end || params_->src_tokens[first] >= first_token + layout::kChunkTokens) {
      return true;
    }
    std::byte* slot =
        ring_.acquire_slot(group_, reader, chunk, previous_in_slot(base, first, chunk));
    if (slot == nullptr) return false;
    const std::int64_t last =
        first_pair_of(params_->src_tokens, first, end, first_token + layout::kChunkTokens);
    for (std::int64_t pair = first; pair <= last; ++pair) {
      auto sum = reducer_.begin(group_);  // without an output behind the last pair: ends them all
      if (pair < last) describe(sum, reader, pair, slot + (pair - first) * params_->rows.row_bytes);
      reducer_.push(group_, sum);
    }
    reducer_.drain(group_);
    ring_.publish(group_, reader, chunk);
    return true;
  }

  /// The last chunk with pairs in [base, first) that has the slot of `chunk`; -1 if none.
  EP_HOST_DEVICE std::int64_t previous_in_slot(std::int64_t base,
                                               std::int64_t first,
                                               std::int64_t chunk) const {
    while (first > base) {
      const std::int64_t earlier = params_->src_tokens[first - 1] / layout::kChunkTokens;
      if ((chunk - earlier) % op_->control().shape.ring_slots == 0) return earlier;
      first = first_pair_of(params_->src_tokens, base, first, earlier * layout::kChunkTokens);
    }
    return -1;
  }

  EP_HOST_DEVICE void describe(typename Exec::RowReducer::Sum& sum,
                               int reader,
                               std::int64_t pair,
                               std::byte* out) const {
    sum.out = out;
    if (params_->has_expert_rows()) {
      const int topk = routing_.topk();
      const PairRecord record{params_->record_rows + pair * topk, params_->src_tokens[pair], topk};
      for (int k = 0; k < topk; ++k) {
        if (record.is_first(k))
          sum.add(params_->rows.row(record.rows[k]), weight_of(reader, record, k));
      }
    } else {
      sum.add(params_->rows.row(pair), 1.0F);
    }
    sum.end_hop();
  }

  /// As summed_weight: repeats share their row.
  EP_HOST_DEVICE float weight_of(int reader, const PairRecord& record, int k) const {
    if (!params_->sum.weighted) return 1.0F;
    const float* weights = blocks_.template array<float>(reader, layout::Section::kTopkWeights) +
                           std::int64_t{record.token} * record.topk;
    float sum = Memory::load(weights + k);
    for (int later = k + 1; later < record.topk; ++later) {
      if (record.rows[later] == record.rows[k]) sum = sum + Memory::load(weights + later);
    }
    return sum;
  }

  G group_;
  const primitives::OpContext<Exec>* op_;
  const CombineParams* params_;
  RoutingView<Exec> routing_;
  BlockView<Exec> blocks_;
  primitives::SlotRing<Exec> ring_;
  typename Exec::RowReducer reducer_;
};

}  // namespace ep::intranode
