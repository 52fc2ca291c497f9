// SPDX-License-Identifier: Apache-2.0
// One lane of the push role of kExpertMajor: an owner sums the rows of each pair and sends one row
// through the ring.
#pragma once

#include "intranode/push_steps.h"
#include "primitives/slot_ring.h"

#include <cstdint>

namespace ep::intranode {

template <primitives::Executor Exec, primitives::Coop G>
class SumPushLane {
 public:
  using Memory = typename Exec::Memory;
  using Sum = typename Exec::RowReducer::Sum;

  EP_HOST_DEVICE SumPushLane(G group,
                             const primitives::OpContext<Exec>& op,
                             const CombineParams& params,
                             const primitives::Lane& lane)
      : group_(group),
        params_(&params),
        blocks_{&op},
        ring_(op),
        reducer_(Exec::make_row_reducer(group, lane, params.op, params.sum)),
        scratch_(lane, params.routing.tables.shape),
        tickets_(group, op, params, scratch_),
        abort_(op) {}

  /// All tickets that this lane gets. The rows of a pair are on their way while the pair before is
  /// summed. False if the group gave up.
  EP_HOST_DEVICE bool run() {
    auto front = reducer_.begin(group_);
    Target target;  // of `front`
    for (bool is_over = false; !is_over;) {
      auto next = reducer_.begin(group_);
      is_over = !find_pair();
      if (!abort_.may_proceed(group_)) return false;
      if (!is_over) {
        describe(next);
        reducer_.load(group_, next);
      }
      if (front.out != nullptr) {
        // Nothing that this lane has claimed before is left to be published when it waits.
        if (!ring_.acquire(group_, target.reader, target.pair, 1)) return false;
        reducer_.finish(group_, front);
        reducer_.drain(group_);
        ring_.publish(group_, target.reader, target.pair, 1);
      }
      front = next;
      if (!is_over) target = {tickets_.reader(), scratch_.pairs[at_]};
    }
    return true;
  }

 private:
  struct Target {
    int reader = 0;
    std::int32_t pair = 0;
  };

  /// Goes on to the next pair, `at_` in its ticket. False if there is none.
  EP_HOST_DEVICE bool find_pair() {
    for (;;) {
      while (++at_ < params_->push_ticket_tokens) {
        if (at_ % PushScratch::kBatchTokens == 0) find_terms();
        if (scratch_.pairs[at_] >= 0) return true;
      }
      if (!tickets_.next()) return false;
      at_ = -1;
    }
  }

  /// Terms of the tokens of this lane's ticket from `at_` on, as many as are looked up at once.
  EP_HOST_DEVICE void find_terms() {
    const int topk = params_->routing.tables.shape.topk;
    const int left = params_->push_ticket_tokens - at_;
    const int count = topk * (left < PushScratch::kBatchTokens ? left : PushScratch::kBatchTokens);
    group_.sync();  // all threads are done with the terms before
    primitives::for_each_strided(group_, count, [&](std::int64_t i) {
      scratch_.raw[i] = recorded(at_ + static_cast<int>(i) / topk, static_cast<int>(i) % topk);
    });
    group_.sync();
    primitives::for_each_strided(group_, count, [&](std::int64_t i) {
      const int k = static_cast<int>(i) % topk;
      scratch_.terms[i] = merged(scratch_.raw + i - k, k, topk);
    });
    group_.sync();
  }

  /// Row and weight of k of a token of the ticket; row -1: not here, or dropped.
  EP_HOST_DEVICE PushScratch::Term recorded(int i, int k) const {
    const std::int32_t pair = scratch_.pairs[i];
    if (pair < 0) return {-1, 0.0F};
    const int topk = params_->routing.tables.shape.topk;
    PushScratch::Term term{params_->record_rows[tickets_.record_of(pair) * topk + k], 1.0F};
    if (params_->sum.weighted) {
      const float* weights =
          blocks_.template array<float>(tickets_.reader(), layout::Section::kTopkWeights);
      term.weight = Memory::load(weights + tickets_.token(i) * topk + k);
    }
    return term;
  }

  /// Repeats share their row, and only the first has it.
  EP_HOST_DEVICE static PushScratch::Term merged(const PushScratch::Term* raw, int k, int topk) {
    PushScratch::Term term = raw[k];
    for (int earlier = 0; earlier < k; ++earlier) {
      if (raw[earlier].row == term.row) return {-1, 0.0F};
    }
    term.weight = sum_of_repeats(
        topk, k, [&](int later) { return raw[later].row == term.row; },
        [&](int at) { return raw[at].weight; });
    return term;
  }

  EP_HOST_DEVICE void describe(Sum& sum) const {
    const int topk = params_->routing.tables.shape.topk;
    const std::int64_t in_batch = at_ % PushScratch::kBatchTokens;
    const PushScratch::Term* terms = scratch_.terms + in_batch * topk;
    sum.out = ring_.row_at(tickets_.reader(), scratch_.pairs[at_]);
    for (int k = 0; k < topk; ++k) {
      const PushScratch::Term term = terms[k];
      if (term.row >= 0) {
        sum.add(params_->rows.row(term.row), params_->sum.weighted ? term.weight : 1.0F);
      }
    }
    sum.end_hop();
  }

  G group_;
  const CombineParams* params_;
  BlockView<Exec> blocks_;
  primitives::SlotRing<Exec> ring_;
  typename Exec::RowReducer reducer_;
  PushScratch scratch_;
  PushTickets<Exec, G> tickets_;
  primitives::AbortWatch<Exec> abort_;
  int at_ = layout::kChunkTokens;
};

}  // namespace ep::intranode
