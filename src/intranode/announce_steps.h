// SPDX-License-Identifier: Apache-2.0
// Announcements: what each rank tells every peer at the start of an operation, and how all of them
// reach the same verdict.
#pragma once

#include "intranode/dispatch_params.h"
#include "primitives/coop.h"
#include "primitives/tagged_words.h"

#include <cstdint>

namespace ep::intranode {

/// Fields to every peer: relaxed words, each with the operation's tag.
template <primitives::Executor Exec, primitives::Coop G, class Announcement, class PlaceAt>
EP_HOST_DEVICE void send_fields(G group,
                                const primitives::OpContext<Exec>& op,
                                const Announcement& announcement,
                                PlaceAt place_at) {
  constexpr int kNumFields = layout::Announced<Announcement>::kNumFields;
  primitives::for_each_strided(group, op.num_peers() * kNumFields, [&](std::int64_t i) {
    const int field = static_cast<int>(i) % kNumFields;
    const int peer = op.first_peer() + static_cast<int>(i) / kNumFields;
    Exec::Memory::store_relaxed_sys(&place_at(peer)->fields[field],
                                    layout::tagged_word(op.tag(), announcement.fields[field]));
  });
}

/// What this rank calls.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void send_op_fields(G group, const primitives::OpContext<Exec>& op) {
  send_fields(group, op, op.params->announcement,
              [&](int peer) { return op.op_at(peer, op.rank()); });
}

/// Tells all peers that this rank accepts its call, or why not.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void announce_op(G group,
                                const primitives::OpContext<Exec>& op,
                                std::uint32_t rejection) {
  primitives::for_each_peer(group, op, [&](int peer) {
    // Relaxed: the word carries its tag, and publishes nothing but itself.
    Exec::Memory::store_relaxed_sys(&op.op_at(peer, op.rank())->head,
                                    layout::tagged_word(op.tag(), rejection));
  });
}

/// Where this rank's blocks lie: from now on they may be written (dispatch) or read (combine). The
/// heads come first: a release waits for the stores before it, and none is under way.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void announce_block(G group,
                                   const primitives::OpContext<Exec>& op,
                                   const layout::BlockAnnouncement& block,
                                   std::uint32_t rejection) {
  group.sync();
  primitives::for_each_peer(group, op, [&](int peer) {
    // [sync:announce-block] release: what the blocks hold, and this rank's last reads of them.
    // Acquired in judge_blocks.
    Exec::Memory::store_release_sys(&op.block_at(peer, op.rank())->head,
                                    layout::tagged_word(op.tag(), rejection));
  });
  send_fields(group, op, block, [&](int peer) { return op.block_at(peer, op.rank()); });
}

/// Head and fields of every rank's announcement, as they arrive here.
template <class Announced>
EP_HOST_DEVICE primitives::TaggedWords words_of(const Announced* first, int num_ranks) {
  return {.first = &first->head,
          .words_per_rank = 1 + Announced::kNumFields,
          .stride = static_cast<std::int64_t>(sizeof(Announced) / sizeof(std::uint64_t)),
          .num_ranks = num_ranks};
}

/// False if a word of an announcement says that its rank refused the operation, or calls another
/// than this one. If two ranks differ, each rank sees one that differs from itself.
EP_HOST_DEVICE inline bool agrees(const layout::OpAnnouncement& own,
                                  int word,
                                  std::uint32_t value) {
  const int field = word - 1;
  if (field < 0) return value == layout::kAccepted;
  return field >= layout::kNumAgreedFields || value == own.fields[field];
}

/// Waits for every rank's operation, and judges: every rank sees the same words, so every rank
/// reaches the same verdict. take_tokens(rank, value of kNumTokens) is called by one thread for
/// each. kPending if the group gave up.
template <primitives::Executor Exec, primitives::Coop G, class Take>
EP_HOST_DEVICE Verdict await_ops(G group, const primitives::OpContext<Exec>& op, Take take_tokens) {
  bool agree = true;
  const bool are_here = await_words(group, op, primitives::WaitSite::kAnnounced,
                                    words_of(op.op_from(0), op.num_ranks()),
                                    [&](int word, int rank, std::uint32_t value) {
                                      agree &= agrees(op.params->announcement, word, value);
                                      if (word == 1 + static_cast<int>(layout::OpField::kNumTokens))
                                        take_tokens(rank, value);
                                    });
  if (!are_here) return Verdict::kPending;
  return group.all(agree) ? Verdict::kAccepted : Verdict::kRejected;
}

/// The blocks of all ranks are here: acquires and judges them.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE Verdict judge_blocks(G group, const primitives::OpContext<Exec>& op) {
  bool are_accepted = true;
  primitives::for_each_strided(group, op.num_ranks(), [&](std::int64_t src) {
    // [sync:announce-block] acquire
    const std::uint64_t head =
        Exec::Memory::load_acquire_sys(&op.block_from(static_cast<int>(src))->head);
    are_accepted &= layout::value_in(head) == layout::kAccepted;
  });
  return group.all(are_accepted) ? Verdict::kAccepted : Verdict::kBlockRejected;
}

/// One look at every rank's blocks, for a rank that waits for other words anyway: kPending if one
/// is not here. take(field, rank, value) for fields of a block, as in await_words.
template <primitives::Executor Exec, primitives::Coop G, class Take>
EP_HOST_DEVICE Verdict look_at_blocks(G group, const primitives::OpContext<Exec>& op, Take take) {
  const bool are_here =
      are_words_here(group, op, words_of(op.block_from(0), op.num_ranks()),
                     [&](int word, int rank, std::uint32_t value) { take(word - 1, rank, value); });
  return are_here ? judge_blocks(group, op) : Verdict::kPending;
}

/// Waits for every rank's blocks, and judges them. kPending if the group gave up.
template <primitives::Executor Exec, primitives::Coop G, class Take>
EP_HOST_DEVICE Verdict await_blocks(G group, const primitives::OpContext<Exec>& op, Take take) {
  const bool are_here = await_words(
      group, op, primitives::WaitSite::kBlock, words_of(op.block_from(0), op.num_ranks()),
      [&](int word, int rank, std::uint32_t value) { take(word - 1, rank, value); });
  return are_here ? judge_blocks(group, op) : Verdict::kPending;
}

}  // namespace ep::intranode
