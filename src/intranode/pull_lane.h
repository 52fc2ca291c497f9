// SPDX-License-Identifier: Apache-2.0
// One lane of the pull role: sums the rows of this rank's tokens, in place or from the ring.
#pragma once

#include "intranode/arrivals.h"
#include "intranode/pull_terms.h"
#include "intranode/routing_view.h"
#include "primitives/slot_ring.h"
#include "primitives/ticket.h"

#include <cstddef>
#include <cstdint>

namespace ep::intranode {

/// All terms are of ranks of this node.
struct NoFarTerms {
  static constexpr bool kExist = false;
};

/// One lane that reads the rows of this rank's tokens, in place or from the ring, and writes their
/// sums. Terms: FlatTerms or ExpertTerms. FarTerms: sums that come from other nodes; all terms are
/// added in the order of the nodes.
template <class Terms, primitives::Executor Exec, primitives::Coop G, class FarTerms = NoFarTerms>
class PullLane {
 public:
  EP_HOST_DEVICE PullLane(G group,
                          const primitives::OpContext<Exec>& op,
                          const CombineParams& params,
                          const primitives::Lane& lane,
                          const FarTerms& far_terms = {})
      : group_(group),
        op_(&op),
        params_(&params),
        routing_(params.routing),
        ring_(op),
        reducer_(Exec::make_row_reducer(group, lane, params.op, params.sum)),
        scratch_(lane, params.routing.tables.shape),
        terms_(group, op, params, scratch_),
        far_(far_terms),
        tickets_(group,
                 op.ticket(layout::Ticket::kPull),
                 layout::div_up(routing_.shape().num_tokens, params.ticket_tokens)),
        abort_(op) {}

  /// All tokens that this lane gets tickets for. The rows of a token are on their way while the
  /// token before is summed. False if the group gave up.
  EP_HOST_DEVICE bool run() {
    // [sync:announce-block] acquire, for the bulk loads that follow.
    reducer_.fence_acquired();
    has_ring_ = terms_.note_owners();
    auto front = reducer_.begin(group_);
    auto next = reducer_.begin(group_);
    for (bool is_over = false; !is_over || front.out != nullptr || next.out != nullptr;) {
      if (next.out == nullptr && !is_over) is_over = !take_token(next);
      if (!abort_.may_proceed(group_)) return false;
      bool is_loading = next.out != nullptr;
      if constexpr (FarTerms::kExist) {
        if (is_loading && !look_for_far_terms(front.out == nullptr, is_loading)) return false;
      }
      if (is_loading && has_ring_ && !look_for_rows(front.out == nullptr, is_loading)) return false;
      if (is_loading) reducer_.load(group_, next);
      if (front.out != nullptr) {
        reducer_.finish(group_, front);
        if (has_ring_) release_front();
        if constexpr (FarTerms::kExist) {
          if (!far_.finish_token()) return false;
        }
      }
      front.out = nullptr;
      if (!is_loading) continue;
      front = next;
      next = reducer_.begin(group_);
      if (has_ring_) note_front();
    }
    reducer_.drain(group_);
    primitives::for_each_strided(group_, op_->num_ranks(), [&](std::int64_t rank) {
      scratch_.tally[rank] = op_->is_peer(static_cast<int>(rank)) ? num_pulled_ : 0;
    });
    add_arrivals(group_, *op_, op_->control().pulled, scratch_.tally);
    return true;
  }

 private:
  /// Describes the sum of this lane's next token. False if there is none.
  EP_HOST_DEVICE bool take_token(typename Exec::RowReducer::Sum& sum) {
    if (token_ == ticket_end_) {
      const std::int64_t ticket = tickets_.next(group_);
      if (ticket < 0) return false;
      token_ = static_cast<std::int32_t>(ticket * params_->ticket_tokens);
      batch_end_ = token_;
      ticket_end_ = least(token_ + params_->ticket_tokens,
                          static_cast<std::int32_t>(routing_.shape().num_tokens));
    }
    if (token_ == batch_end_) {
      batch_end_ = least(token_ + PullScratch::kBatchTokens, ticket_end_);
      batch_size_ = batch_end_ - token_;
      terms_.find(token_, batch_size_, has_ring_);
    }
    sum.out = params_->out + std::int64_t{token_} * params_->out_stride_bytes;
    if (params_->bias.data != nullptr) sum.bias = params_->bias.row(token_);
    if constexpr (FarTerms::kExist) far_.add_terms_before(sum, token_);
    terms_.add_terms(sum, index_in_batch());
    if constexpr (FarTerms::kExist) far_.add_terms_behind(sum, token_);
    if (params_->side_out != nullptr) gather_side_values(token_);
    ++token_;
    ++num_pulled_;
    return true;
  }

  EP_HOST_DEVICE static std::int32_t least(std::int32_t a, std::int32_t b) { return a < b ? a : b; }
  /// Of token_.
  EP_HOST_DEVICE int index_in_batch() const { return batch_size_ - (batch_end_ - token_); }
  /// Pairs in the ring of the token that was taken last.
  EP_HOST_DEVICE const std::int32_t* next_pairs() const {
    return scratch_.pairs + (index_in_batch() - 1) * op_->num_ranks();
  }

  /// Whether the next token's rows are in the ring; `may_wait`: no earlier token holds rows of it.
  /// False if the group gave up.
  EP_HOST_DEVICE bool look_for_rows(bool may_wait, bool& are_here) {
    are_here = ring_.are_here(group_, next_pairs());
    if (!are_here && may_wait) {
      if (!ring_.await_all(group_, next_pairs())) return false;
      are_here = true;
    }
    reducer_.fence_acquired();  // [sync:ring-ready] acquire, for the bulk loads that follow
    return true;
  }

  /// As look_for_rows, of the sums from other nodes.
  EP_HOST_DEVICE bool look_for_far_terms(bool may_wait, bool& are_here) {
    are_here = far_.are_here();
    if (are_here || !may_wait) return true;
    are_here = true;
    return far_.await();
  }

  /// The next token is in front.
  EP_HOST_DEVICE void note_front() const {
    primitives::for_each_strided(group_, op_->num_ranks(), [&](std::int64_t rank) {
      scratch_.front_pairs[rank] = next_pairs()[rank];
    });
  }
  EP_HOST_DEVICE void release_front() {
    reducer_.drain(group_);
    ring_.release(group_, scratch_.front_pairs);
  }

  /// The router's gradient: each k gets the value of its (token, expert) row.
  EP_HOST_DEVICE void gather_side_values(std::int64_t token) const {
    const std::int32_t* experts = routing_.experts_of(token);
    primitives::for_each_strided(group_, routing_.topk(), [&](std::int64_t i) {
      const int k = static_cast<int>(i);
      const bool is_here = op_->is_peer(routing_.rank_of(experts[k]));
      const float value = is_here ? terms_.side_value(experts, k, token) : 0.0F;
      Exec::Memory::store(params_->side_out + token * routing_.topk() + k, value);
    });
  }

  G group_;
  const primitives::OpContext<Exec>* op_;
  const CombineParams* params_;
  RoutingView<Exec> routing_;
  primitives::SlotRing<Exec> ring_;
  typename Exec::RowReducer reducer_;
  PullScratch scratch_;
  Terms terms_;
  FarTerms far_;
  primitives::TicketStream<Exec> tickets_;
  primitives::AbortWatch<Exec> abort_;
  bool has_ring_ = false;
  // The next token of this lane, and where those that are looked up, and its ticket, end.
  std::int32_t token_ = 0;
  std::int32_t batch_end_ = 0;
  std::int32_t ticket_end_ = 0;
  std::int32_t batch_size_ = 0;
  std::int32_t num_pulled_ = 0;
};

}  // namespace ep::intranode
