// SPDX-License-Identifier: Apache-2.0
// What lanes of the push role share: the index of the pairs, and tickets of tokens.
#pragma once

#include "intranode/arrivals.h"
#include "intranode/combine_params.h"
#include "intranode/routing_view.h"
#include "primitives/stage.h"
#include "primitives/ticket.h"

#include <cstdint>

namespace ep::intranode {

/// Scratch of a lane that pushes.
struct PushScratch {
  /// The pairs of one source that have records here.
  struct Source {
    std::int64_t base;
    std::int64_t count;
  };
  /// A row of a pair, and its weight.
  struct Term {
    std::int32_t row;
    float weight;
  };
  /// Tokens whose rows are looked up at once.
  static constexpr int kBatchTokens = 2;

  Source* sources;      // [num_ranks]
  std::int32_t* pairs;  // [kChunkTokens], of the ticket at hand; -1: none
  Term* raw;            // [kBatchTokens][topk], as recorded; kExpertMajor
  Term* terms;          // the same, repeats taken together

  EP_HOST_DEVICE PushScratch(const primitives::Lane& lane, const layout::TableShape& shape)
      : sources(layout::array_at<Source>(lane.scratch, 0)),
        pairs(layout::array_at<std::int32_t>(lane.scratch, source_bytes(shape))),
        raw(layout::array_at<Term>(lane.scratch, source_bytes(shape) + kPairBytes)),
        terms(raw + std::int64_t{kBatchTokens} * shape.topk) {}

  EP_HOST_DEVICE static std::int64_t bytes(const layout::TableShape& shape) {
    const std::int64_t num_terms = shape.has_expert_rows ? 2 * kBatchTokens * shape.topk : 0;
    return source_bytes(shape) + kPairBytes + num_terms * static_cast<std::int64_t>(sizeof(Term));
  }

 private:
  static constexpr std::int64_t kPairBytes = std::int64_t{4} * layout::kChunkTokens;

  EP_HOST_DEVICE static std::int64_t source_bytes(const layout::TableShape& shape) {
    return static_cast<std::int64_t>(sizeof(Source)) * shape.num_ranks;
  }
};

/// The pairs of `src` that have records here: a flat owner has none of a dropped pair.
template <primitives::Executor Exec>
EP_HOST_DEVICE PushScratch::Source recorded_pairs(const primitives::OpContext<Exec>& op,
                                                  const CombineParams& params,
                                                  int src) {
  const RoutingView<Exec> routing(params.routing);
  PushScratch::Source source{routing.pair_bases()[src], routing.pairs_from()[src]};
  const std::int64_t kept = routing.capacities()[op.rank()] - source.base;
  if (!params.has_expert_rows() && source.count > kept) source.count = kept > 0 ? kept : 0;
  return source;
}

/// Pairs per ticket of the index.
inline constexpr std::int64_t kPairsPerTicket = 256;

/// Tickets of the index: blocks of pairs, the sources side by side.
template <primitives::Executor Exec>
EP_HOST_DEVICE std::int64_t num_index_tickets(const primitives::OpContext<Exec>& op,
                                              const CombineParams& params) {
  std::int64_t most = 0;
  for (int src = 0; src < op.num_ranks(); ++src) {
    const std::int64_t count = recorded_pairs(op, params, src).count;
    if (count > most) most = count;
  }
  return layout::div_up(most, kPairsPerTicket) * op.num_ranks();
}

/// Enters pairs into the index, by tickets. It needs no peer: lanes do it while they would wait for
/// the verdict.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void index_pairs(G group,
                                const primitives::OpContext<Exec>& op,
                                const CombineParams& params) {
  if (RoutingView<Exec>(params.routing).is_refused()) return;
  auto* index = op.template array<std::int32_t>(op.control().pair_index);
  primitives::TicketStream<Exec> tickets(group, op.ticket(layout::Ticket::kIndex),
                                         num_index_tickets(op, params));
  std::int64_t num_done = 0;
  for (std::int64_t i = tickets.next(group); i >= 0; i = tickets.next(group), ++num_done) {
    const int src = static_cast<int>(i % op.num_ranks());
    const std::int64_t first = i / op.num_ranks() * kPairsPerTicket;
    const PushScratch::Source source = recorded_pairs(op, params, src);
    const std::int64_t left = source.count - first;
    const std::int32_t* tokens = params.src_tokens + source.base + first;
    primitives::for_each_strided(
        group, left < kPairsPerTicket ? left : kPairsPerTicket, [&](std::int64_t at) {
          Exec::Memory::store(index + op.control().token_index(src, tokens[at]),
                              static_cast<std::int32_t>(first + at));
        });
  }
  stage_complete(group, op, layout::Stage::kIndexed, num_done);
}

/// Tickets of tokens with one reader each, in ascending token, then reader: the order in which
/// every reader needs them, so a writer that waits for a row of the ring never holds back what
/// would free it (README.md).
template <primitives::Executor Exec, primitives::Coop G>
class PushTickets {
 public:
  EP_HOST_DEVICE PushTickets(G group,
                             const primitives::OpContext<Exec>& op,
                             const CombineParams& params,
                             const PushScratch& scratch)
      : group_(group),
        op_(&op),
        params_(&params),
        scratch_(scratch),
        num_tokens_(most_tokens(op, params)),
        tickets_(group,
                 op.ticket(layout::Ticket::kPush),
                 layout::div_up(num_tokens_, params.push_ticket_tokens) * (op.num_ranks() - 1)) {
    primitives::for_each_strided(group, op.num_ranks(), [&](std::int64_t src) {
      scratch_.sources[src] = recorded_pairs(op, params, static_cast<int>(src));
    });
    group.sync();
  }

  /// Goes on to the next ticket: its pairs are in the scratch. False if there is none.
  EP_HOST_DEVICE bool next() {
    const std::int64_t ticket = tickets_.next(group_);
    if (ticket < 0) return false;
    const int num_readers = op_->num_ranks() - 1;
    reader_ = (op_->rank() + 1 + static_cast<int>(ticket % num_readers)) % op_->num_ranks();
    first_token_ = ticket / num_readers * params_->push_ticket_tokens;
    group_.sync();  // all threads are done with the ticket before
    primitives::for_each_strided(group_, params_->push_ticket_tokens, [&](std::int64_t i) {
      scratch_.pairs[i] = pair_of(first_token_ + i);
    });
    group_.sync();
    return true;
  }

  EP_HOST_DEVICE int reader() const { return reader_; }
  EP_HOST_DEVICE std::int64_t token(int i) const { return first_token_ + i; }
  /// The record of a pair of the reader.
  EP_HOST_DEVICE std::int64_t record_of(std::int64_t pair) const {
    return scratch_.sources[reader_].base + pair;
  }

 private:
  EP_HOST_DEVICE static std::int64_t most_tokens(const primitives::OpContext<Exec>& op,
                                                 const CombineParams& params) {
    const std::int64_t* tokens = RoutingView<Exec>(params.routing).source_tokens();
    std::int64_t most = 0;
    for (int src = 0; src < op.num_ranks(); ++src) most = tokens[src] > most ? tokens[src] : most;
    return most;
  }

  /// The reader's pair of the token, -1 if it has none here. An entry may be left over from any
  /// earlier operation.
  EP_HOST_DEVICE std::int32_t pair_of(std::int64_t token) const {
    if (token >= num_tokens_) return -1;
    const auto* index = op_->template array<std::int32_t>(op_->control().pair_index);
    const std::int32_t pair =
        Exec::Memory::load(index + op_->control().token_index(reader_, token));
    if (pair >= scratch_.sources[reader_].count) return -1;
    return params_->src_tokens[record_of(pair)] == token ? pair : -1;
  }

  G group_;
  const primitives::OpContext<Exec>* op_;
  const CombineParams* params_;
  PushScratch scratch_;
  std::int64_t num_tokens_;
  primitives::TicketStream<Exec> tickets_;
  int reader_ = 0;
  std::int64_t first_token_ = 0;
};

}  // namespace ep::intranode
