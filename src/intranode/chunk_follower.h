// SPDX-License-Identifier: Apache-2.0
// kExpertMajor: how an owner learns of rows that arrived at the first place of their pair: the
// chunks of the sources, by tickets, and the records of their pairs.
#pragma once

#include "intranode/arrivals.h"
#include "intranode/routing_view.h"
#include "primitives/ticket.h"

#include <cstdint>

namespace ep::intranode {

/// One received pair: its token and the final row of each k (-1: not here, or dropped).
struct PairRecord {
  const std::int32_t* rows;
  std::int32_t token;
  int topk;

  /// True if k has a row and no earlier k has the same.
  EP_HOST_DEVICE bool is_first(int k) const {
    if (rows[k] < 0) return false;
    for (int earlier = 0; earlier < k; ++earlier) {
      if (rows[earlier] == rows[k]) return false;
    }
    return true;
  }
  /// The k whose row the sender wrote, topk if none.
  EP_HOST_DEVICE int first() const {
    int k = 0;
    while (k < topk && rows[k] < 0) ++k;
    return k;
  }
};

/// One received pair, as scratch holds it.
struct HeldPair {
  PairRecord record;
  const std::int32_t* places;  ///< the row of each k with is_first(k), else -1

  /// The next k behind `k` that has a place, topk if none.
  EP_HOST_DEVICE int next(int k) const {
    do {
      ++k;
    } while (k < record.topk && places[k] < 0);
    return k;
  }
};

/// Scratch of a lane that copies: its tally, what it knows of each source, and the records of the
/// pairs at hand.
struct CopyScratch {
  struct Source {
    std::int64_t num_chunks;
    std::int64_t first_pair;
  };

  /// Records of two chunks: those of the next one are read while rows of one are still loading.
  static constexpr int kPairs = 2 * layout::kDispatchChunkTokens;

  Source* sources;       // [num_ranks]
  std::int32_t* tokens;  // [kPairs]
  std::int32_t* rows;    // [kPairs][topk]
  std::int32_t* places;  // [kPairs][topk]

  EP_HOST_DEVICE CopyScratch(const primitives::Lane& lane, const layout::TableShape& shape)
      : sources(layout::array_at<Source>(lane.scratch, tally_bytes(shape))),
        tokens(layout::array_at<std::int32_t>(lane.scratch, sources_end(shape))),
        rows(tokens + kPairs),
        places(rows + std::int64_t{kPairs} * shape.topk) {}

  EP_HOST_DEVICE static std::int64_t bytes(const layout::TableShape& shape) {
    return sources_end(shape) +
           static_cast<std::int64_t>(sizeof(std::int32_t)) * kPairs * (1 + 2 * shape.topk);
  }

 private:
  EP_HOST_DEVICE static std::int64_t tally_bytes(const layout::TableShape& shape) {
    return std::int64_t{8} * shape.num_ranks;
  }
  EP_HOST_DEVICE static std::int64_t sources_end(const layout::TableShape& shape) {
    return tally_bytes(shape) + static_cast<std::int64_t>(sizeof(Source)) * shape.num_ranks;
  }
};

/// Takes chunks by tickets, one of them ahead of the chunk at hand, and reads their records. Pairs
/// are counted from the lane's first; the last CopyScratch::kPairs of them are in scratch.
template <primitives::Executor Exec, primitives::Coop G>
class ChunkFollower {
 public:
  using Memory = typename Exec::Memory;

  EP_HOST_DEVICE ChunkFollower(G group,
                               const primitives::OpContext<Exec>& op,
                               const DispatchParams& params,
                               const CopyScratch& scratch)
      : group_(group),
        op_(&op),
        params_(&params),
        scratch_(scratch),
        tickets_(group, op.ticket(layout::Ticket::kCopy), look_up_sources() * num_sources()) {
    const BlockView<Exec> blocks{&op};
    tokens_ = blocks.template array<std::int32_t>(op.rank(), layout::Section::kSrcTokens);
    rows_ = blocks.template array<std::int32_t>(op.rank(), layout::Section::kRecordRows);
    claim();
  }

  /// Chunks are left: one is ahead.
  EP_HOST_DEVICE bool has_more() const { return flag_ != nullptr; }

  /// Whether the chunk ahead had landed at the look before: nobody waits for a load here.
  EP_HOST_DEVICE bool has_landed() {
    const bool has_landed = layout::tag_in(group_.broadcast(seen_)) == op_->tag();
    if (!has_landed) look();
    return has_landed;
  }

  /// Waits for the chunk ahead, reads its records and takes the next one. False if the group gave
  /// up.
  template <class Pipe>
  EP_HOST_DEVICE bool open(Pipe& pipe) {
    std::uint64_t word = 0;
    const bool is_here =
        wait_until(group_, *op_, {primitives::WaitSite::kChunk, src_ahead_, op_->tag()}, [&] {
          word = Memory::load_acquire_sys(flag_);  // [sync:chunk] acquire
          return std::uint64_t{layout::tag_in(word)};
        });
    if (!is_here) return false;
    pipe.fence_acquired();  // [sync:chunk] acquire, for the bulk loads that follow
    // Only the pairs of this chunk: others of the source may not have landed.
    const std::uint32_t landed = layout::value_in(group_.broadcast(word));
    read_records(scratch_.sources[src_ahead_].first_pair + layout::first_pair_in(landed),
                 layout::num_pairs_in(landed));
    src_ = src_ahead_;
    claim();
    return true;
  }

  /// The source of the chunk that was opened last.
  EP_HOST_DEVICE int src() const { return src_; }
  /// Pairs of all chunks that were opened.
  EP_HOST_DEVICE std::int64_t num_opened() const { return num_opened_; }
  /// One of the last CopyScratch::kPairs of them.
  EP_HOST_DEVICE HeldPair pair(std::int64_t number) const {
    const int slot = slot_of(number);
    return {{scratch_.rows + slot * topk(), scratch_.tokens[slot], topk()},
            scratch_.places + slot * topk()};
  }

 private:
  EP_HOST_DEVICE int topk() const { return params_->routing.tables.shape.topk; }
  EP_HOST_DEVICE static int slot_of(std::int64_t pair) {
    return static_cast<int>(pair % CopyScratch::kPairs);
  }

  /// What this rank's own send role stored to all places needs no copies.
  EP_HOST_DEVICE int num_sources() const {
    return op_->num_ranks() - (params_->returns_gradient ? 0 : 1);
  }

  /// Returns the most chunks of any source.
  EP_HOST_DEVICE std::int64_t look_up_sources() {
    const RoutingView<Exec> routing(params_->routing);
    primitives::for_each_strided(group_, op_->num_ranks(), [&](std::int64_t src) {
      scratch_.sources[src] = {
          layout::div_up(routing.source_tokens()[src], layout::kDispatchChunkTokens),
          routing.pair_bases()[src]};
    });
    group_.sync();
    std::int64_t max_chunks = 0;
    for (int src = 0; src < op_->num_ranks(); ++src) {
      const std::int64_t num_chunks = scratch_.sources[src].num_chunks;
      if (num_chunks > max_chunks) max_chunks = num_chunks;
    }
    return max_chunks;
  }

  EP_HOST_DEVICE void claim() {
    flag_ = nullptr;
    for (std::int64_t i = tickets_.next(group_); i >= 0; i = tickets_.next(group_)) {
      src_ahead_ = static_cast<int>((op_->rank() + 1 + i % num_sources()) % op_->num_ranks());
      const std::int64_t chunk = i / num_sources();
      if (chunk >= scratch_.sources[src_ahead_].num_chunks) continue;
      flag_ = op_->template array<std::uint64_t>(op_->control().chunk_flags) +
              op_->control().chunk_flag_index(src_ahead_, chunk);
      look();
      return;
    }
  }

  EP_HOST_DEVICE void look() {
    // Relaxed: open() acquires the word.
    if (group_.thread_rank() == 0) seen_ = Memory::load_relaxed_sys(flag_);
  }

  EP_HOST_DEVICE void read_records(std::int64_t first_pair, int num_pairs) {
    const std::int64_t num_rows = std::int64_t{num_pairs} * topk();
    primitives::for_each_strided(group_, num_rows, [&](std::int64_t i) {
      scratch_.rows[index_of(i)] = Memory::load(rows_ + first_pair * topk() + i);
    });
    primitives::for_each_strided(group_, num_pairs, [&](std::int64_t i) {
      scratch_.tokens[slot_of(num_opened_ + i)] = Memory::load(tokens_ + first_pair + i);
    });
    group_.sync();
    primitives::for_each_strided(group_, num_rows, [&](std::int64_t i) {
      const int at = index_of(i);
      const int k = static_cast<int>(i) % topk();
      const PairRecord record{scratch_.rows + at - k, 0, topk()};
      scratch_.places[at] = record.is_first(k) ? record.rows[k] : -1;
    });
    group_.sync();
    num_opened_ += num_pairs;
  }
  /// Of the i-th row of the chunk that is being opened.
  EP_HOST_DEVICE int index_of(std::int64_t i) const {
    const int pair = static_cast<int>(i) / topk();
    return slot_of(num_opened_ + pair) * topk() + static_cast<int>(i) % topk();
  }

  G group_;
  const primitives::OpContext<Exec>* op_;
  const DispatchParams* params_;
  CopyScratch scratch_;
  primitives::TicketStream<Exec> tickets_;
  const std::int32_t* tokens_;
  const std::int32_t* rows_;
  // The chunk ahead: its word (null: none), its source, and what the last look saw.
  const std::uint64_t* flag_ = nullptr;
  int src_ahead_ = 0;
  std::uint64_t seen_ = 0;
  int src_ = 0;
  std::int64_t num_opened_ = 0;
};

}  // namespace ep::intranode
