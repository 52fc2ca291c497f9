// SPDX-License-Identifier: Apache-2.0
// kExpertMajor: the tokens of one ticket of the send role. All of them are looked up at once, by
// all threads, and so are their records and weights stored.
#pragma once

#include "intranode/arrivals.h"
#include "intranode/routing_view.h"

#include <cstddef>
#include <cstdint>

namespace ep::intranode {

/// Scratch of a lane that sends rows to experts.
struct ExpertScratch {
  /// Where things lie at a rank, and which tokens of the ticket at hand go there.
  struct Peer {
    std::byte* rows;           ///< row 0
    std::byte* scales;         ///< of row 0
    float* weights;            ///< of row 0
    std::int32_t* records;     ///< of pair 0
    std::int32_t* src_tokens;  ///< of pair 0
    std::int64_t first_pair;   ///< of this rank's tokens
    std::int64_t capacity;
    std::int32_t prefix;   ///< this rank's pairs there before the tokens' group
    std::uint32_t mask;    ///< tokens of the group that go there
    std::uint32_t landed;  ///< chunk_value of the chunk that waits to be published
  };
  /// What a k of a token is.
  struct Choice {
    std::int32_t expert;  ///< -1: none
    std::int32_t rank;    ///< -1: no expert, or not on this node
    std::int32_t row;     ///< final row, -1: dropped
    std::int32_t target;  ///< the row, if the sender stores it; else -1
    std::int32_t pair;    ///< of the token and the rank, if no earlier k has the rank; else -1
    float weight;
  };
  /// Where the sender stores a row.
  struct Place {
    std::byte* row;
    std::byte* scales;
  };

  /// A ticket lies in one group of tokens.
  static constexpr int kMaxTokens = layout::kChunkTokens;
  static_assert(layout::kGroupTokens % kMaxTokens == 0);

  Peer* peers;               // [num_ranks]
  Place* places;             // [kMaxTokens][topk], those of a token from its first on
  Choice* choices;           // [kMaxTokens][topk]
  std::int32_t* num_places;  // [kMaxTokens]

  EP_HOST_DEVICE ExpertScratch(std::byte* scratch, const layout::TableShape& shape)
      : peers(layout::array_at<Peer>(scratch, 0)),
        places(layout::array_at<Place>(scratch, bytes_of<Peer>(shape.num_ranks))),
        choices(layout::array_at<Choice>(scratch, choices_at(shape))),
        num_places(layout::array_at<std::int32_t>(
            scratch, choices_at(shape) + bytes_of<Choice>(num_choices(shape)))) {}

  EP_HOST_DEVICE static std::int64_t bytes(const layout::TableShape& shape) {
    return choices_at(shape) + bytes_of<Choice>(num_choices(shape)) +
           bytes_of<std::int32_t>(kMaxTokens);
  }

 private:
  template <class T>
  EP_HOST_DEVICE static std::int64_t bytes_of(std::int64_t count) {
    return static_cast<std::int64_t>(sizeof(T)) * count;
  }
  EP_HOST_DEVICE static std::int64_t num_choices(const layout::TableShape& shape) {
    return std::int64_t{kMaxTokens} * shape.topk;
  }
  EP_HOST_DEVICE static std::int64_t choices_at(const layout::TableShape& shape) {
    return bytes_of<Peer>(shape.num_ranks) + bytes_of<Place>(num_choices(shape));
  }
};

template <primitives::Executor Exec, primitives::Coop G>
class ExpertTicket {
 public:
  using Memory = typename Exec::Memory;
  using Peer = ExpertScratch::Peer;
  using Choice = ExpertScratch::Choice;
  using Place = ExpertScratch::Place;

  EP_HOST_DEVICE ExpertTicket(G group,
                              const primitives::OpContext<Exec>& op,
                              const DispatchParams& params,
                              const ExpertScratch& scratch)
      : group_(group), op_(&op), params_(&params), routing_(params.routing), scratch_(scratch) {}

  /// Once per launch. Precondition: the verdict is there, and with it the blocks of all ranks.
  EP_HOST_DEVICE void look_up_blocks() {
    const BlockView<Exec> outputs{op_};
    primitives::for_each_peer(group_, *op_, [&](int rank) {
      Peer& peer = scratch_.peers[rank];
      peer.rows = outputs.section(rank, layout::Section::kRows);
      peer.scales = outputs.section(rank, layout::Section::kScales);
      peer.weights = outputs.template array<float>(rank, layout::Section::kTopkWeights);
      peer.records = outputs.template array<std::int32_t>(rank, layout::Section::kRecordRows);
      peer.src_tokens = outputs.template array<std::int32_t>(rank, layout::Section::kSrcTokens);
      peer.first_pair = routing_.first_rows()[rank];
      peer.capacity = routing_.capacities()[rank];
    });
  }

  /// Opens the ticket that begins with this token: stores the tokens' records and weights, and
  /// finds the places of their rows. Adds the pairs to `tally`, [num_ranks].
  EP_HOST_DEVICE void open(std::int64_t first_token, std::int64_t* tally) {
    group_.sync();  // all threads are done with the ticket before
    first_token_ = first_token;
    const std::int64_t left = routing_.shape().num_tokens - first_token;
    const int most = params_->send_ticket_tokens();
    num_tokens_ = left < most ? static_cast<int>(left) : most;
    look_up_pairs(tally);
    for_each_choice([&](std::int64_t token, int k, Choice& choice) { look_up(token, k, choice); });
    group_.sync();
    for_each_choice([&](std::int64_t token, int k, Choice& choice) { resolve(token, k, choice); });
    group_.sync();
    for_each_choice([&](std::int64_t token, int k, Choice& choice) {
      store_record(token, k, choice);
      place(token, k, choice);
    });
    group_.sync();
  }

  /// Where the sender stores the row of a token of this ticket: at peers first, the wire takes
  /// longest.
  EP_HOST_DEVICE int num_places(std::int64_t token) const {
    return scratch_.num_places[token - first_token_];
  }
  EP_HOST_DEVICE const Place& place_of(std::int64_t token, int i) const {
    return scratch_.places[index_of(token) + i];
  }

  /// What the chunk's word will say: this ticket is the chunk. Thread i writes and reads that of
  /// rank i (and i + size(), ...).
  EP_HOST_DEVICE void note_landed() {
    const int first = bit_of(first_token_);
    primitives::for_each_peer(group_, *op_, [&](int rank) {
      Peer& peer = scratch_.peers[rank];
      const int num_pairs = Exec::popcount((peer.mask >> first) & below(num_tokens_));
      peer.landed = layout::chunk_value(pairs_before(peer, first_token_), num_pairs);
    });
  }
  EP_HOST_DEVICE std::uint32_t landed(int rank) const { return scratch_.peers[rank].landed; }

 private:
  EP_HOST_DEVICE static int bit_of(std::int64_t token) {
    return static_cast<int>(token % layout::kGroupTokens);
  }
  EP_HOST_DEVICE static std::uint32_t below(int bit) { return (1U << bit) - 1; }
  /// Pairs of this rank's tokens below `token`, which is of this ticket.
  EP_HOST_DEVICE static std::int64_t pairs_before(const Peer& peer, std::int64_t token) {
    return peer.prefix + Exec::popcount(peer.mask & below(bit_of(token)));
  }

  EP_HOST_DEVICE int index_of(std::int64_t token) const {
    return static_cast<int>(token - first_token_) * routing_.topk();
  }
  EP_HOST_DEVICE const Choice* choices_of(std::int64_t token) const {
    return scratch_.choices + index_of(token);
  }

  /// step(token, k, choice) for all choices of the ticket, shared out over the group.
  template <class Step>
  EP_HOST_DEVICE void for_each_choice(Step step) {
    const int topk = routing_.topk();
    primitives::for_each_strided(group_, std::int64_t{num_tokens_} * topk, [&](std::int64_t i) {
      const auto at = static_cast<int>(i);
      step(first_token_ + at / topk, at % topk, scratch_.choices[at]);
    });
  }

  EP_HOST_DEVICE void look_up_pairs(std::int64_t* tally) {
    const auto* masks = routing_.template array<std::uint32_t>(params_->routing.tables.masks);
    const auto* prefixes = routing_.template array<std::int32_t>(params_->routing.tables.prefixes);
    primitives::for_each_peer(group_, *op_, [&](int rank) {
      const std::int64_t at = routing_.mask_index(rank, first_token_ / layout::kGroupTokens);
      Peer& peer = scratch_.peers[rank];
      peer.mask = masks[at];
      peer.prefix = prefixes[at];
      tally[rank] += Exec::popcount((peer.mask >> bit_of(first_token_)) & below(num_tokens_));
    });
  }

  EP_HOST_DEVICE void look_up(std::int64_t token, int k, Choice& choice) const {
    choice.expert = routing_.experts_of(token)[k];
    choice.weight = params_->has_weights ? weight_of(token, k) : 0.0F;
    choice.rank = routing_.rank_of(choice.expert);
    if (!op_->is_peer(choice.rank)) choice.rank = -1;
    choice.row = -1;
    if (choice.rank < 0) return;
    const std::int64_t row = routing_.row_in(routing_.expert_column(choice.expert), token);
    if (row < scratch_.peers[choice.rank].capacity) choice.row = static_cast<std::int32_t>(row);
  }
  EP_HOST_DEVICE float weight_of(std::int64_t token, int k) const {
    const StridedInput& weights = params_->topk_weights;
    return static_cast<const float*>(
        weights.data)[token * weights.row_stride + k * weights.col_stride];
  }

  /// What the choice is among those of its token. Stores what only one choice has: a pair's token,
  /// a row's weight.
  EP_HOST_DEVICE void resolve(std::int64_t token, int k, Choice& choice) const {
    choice.target = -1;
    choice.pair = -1;
    if (choice.rank < 0) return;
    const Choice* choices = choices_of(token);
    bool is_first_pair = true;
    bool is_first_row = choice.row >= 0;
    bool has_earlier = false;  // an earlier k has a row at the same rank
    for (int earlier = 0; earlier < k; ++earlier) {
      if (choices[earlier].rank != choice.rank) continue;
      is_first_pair = false;
      has_earlier |= choices[earlier].row >= 0;
      is_first_row &= choices[earlier].expert != choice.expert;
    }
    const Peer& peer = scratch_.peers[choice.rank];
    if (is_first_pair) {
      choice.pair = static_cast<std::int32_t>(peer.first_pair + pairs_before(peer, token));
      Memory::store(peer.src_tokens + choice.pair, static_cast<std::int32_t>(token));
    }
    if (!is_first_row) return;
    if (!(has_earlier && copies_itself(choice.rank))) choice.target = choice.row;
    if (!params_->has_weights) return;
    const float weight = sum_of_repeats(
        routing_.topk(), k, [&](int later) { return choices[later].expert == choice.expert; },
        [&](int at) { return choices[at].weight; });
    Memory::store(peer.weights + choice.row, weight);
  }

  /// The rank makes the further copies of a row.
  EP_HOST_DEVICE bool copies_itself(int rank) const {
    return params_->copies_at_receiver && (rank != op_->rank() || params_->returns_gradient);
  }

  /// Entry k of the token's record at each rank that it goes to.
  EP_HOST_DEVICE void store_record(std::int64_t token, int k, const Choice& choice) const {
    const Choice* choices = choices_of(token);
    for (int first = 0; first < routing_.topk(); ++first) {
      const Choice& pair = choices[first];
      if (pair.pair < 0) continue;
      std::int32_t* record =
          scratch_.peers[pair.rank].records + std::int64_t{pair.pair} * routing_.topk();
      Memory::store(record + k, choice.rank == pair.rank ? choice.row : -1);
    }
  }

  /// Puts the choice's place behind those that come before it.
  EP_HOST_DEVICE void place(std::int64_t token, int k, const Choice& choice) const {
    const Choice* choices = choices_of(token);
    const bool is_own = choice.rank == op_->rank();
    int num_before = 0;
    int num_all = 0;
    for (int other = 0; other < routing_.topk(); ++other) {
      if (choices[other].target < 0) continue;
      const bool is_other_own = choices[other].rank == op_->rank();
      ++num_all;
      if (is_other_own == is_own ? other < k : is_own) ++num_before;
    }
    if (k == 0) scratch_.num_places[token - first_token_] = num_all;
    if (choice.target < 0) return;
    const Peer& peer = scratch_.peers[choice.rank];
    scratch_.places[index_of(token) + num_before] = {
        peer.rows + choice.target * params_->x.row_bytes,
        peer.scales + choice.target * params_->scales.row_bytes};
  }

  G group_;
  const primitives::OpContext<Exec>* op_;
  const DispatchParams* params_;
  RoutingView<Exec> routing_;
  ExpertScratch scratch_;
  std::int64_t first_token_ = 0;
  int num_tokens_ = 0;
};

}  // namespace ep::intranode
