// SPDX-License-Identifier: Apache-2.0
// Words of peers that carry the tag of their operation: each says itself that it is there, so that
// they need no order and no release.
#pragma once

#include "primitives/wait.h"

#include <cstdint>

namespace ep::primitives {

/// Loads that a thread keeps in flight where their latency would add up.
inline constexpr int kLoadBatch = 4;

/// The same words of every rank: `words_per_rank` of them, `stride` words apart from rank to rank.
struct TaggedWords {
  const std::uint64_t* first;
  int words_per_rank;
  std::int64_t stride;
  int num_ranks;

  EP_HOST_DEVICE const std::uint64_t* at(int word, int rank) const {
    return first + rank * stride + word;
  }
};

/// One thread's look at a word of ranks first, first + 1, ...: up to kLoadBatch of them, all in
/// flight.
template <Executor Exec>
class TaggedLook {
 public:
  EP_HOST_DEVICE TaggedLook(const TaggedWords& words, int word, int first_rank)
      : words_(&words), word_(word), first_rank_(first_rank) {
    const int left = words.num_ranks - first_rank;
    count_ = left < kLoadBatch ? left : kLoadBatch;
  }

  /// The first rank whose word has not the tag; -1 if there is none.
  EP_HOST_DEVICE int find_missing(std::uint32_t tag) {
    for (int i = 0; i < kLoadBatch; ++i) {
      // Relaxed: the word publishes nothing but itself.
      if (i < count_) got_[i] = Exec::Memory::load_relaxed_sys(words_->at(word_, first_rank_ + i));
    }
    int missing = -1;
    for (int i = kLoadBatch - 1; i >= 0; --i) {
      if (i < count_ && layout::tag_in(got_[i]) != tag) missing = first_rank_ + i;
    }
    return missing;
  }
  /// take(word, rank, value) in ascending rank. Precondition: none was missing.
  template <class Take>
  EP_HOST_DEVICE void visit(Take take) const {
    for (int i = 0; i < kLoadBatch; ++i) {
      if (i < count_) take(word_, first_rank_ + i, layout::value_in(got_[i]));
    }
  }

 private:
  const TaggedWords* words_;
  int word_;
  int first_rank_;
  int count_;
  std::uint64_t got_[kLoadBatch] = {};
};

/// True if all words carry the operation's tag already; then take(word, rank, value) was called for
/// each, as in await_words, else perhaps for some.
template <Executor Exec, Coop G, class Take>
EP_HOST_DEVICE bool are_words_here(G group,
                                   const OpContext<Exec>& op,
                                   const TaggedWords& words,
                                   Take take) {
  bool are_here = true;
  EP_NO_UNROLL
  for (int word = group.thread_rank(); word < words.words_per_rank; word += group.size()) {
    EP_NO_UNROLL
    for (int rank = 0; rank < words.num_ranks && are_here; rank += kLoadBatch) {
      TaggedLook<Exec> look(words, word, rank);
      are_here = look.find_missing(op.tag()) < 0;
      if (are_here) look.visit(take);
    }
  }
  return group.all(are_here);
}

/// One thread: waits for a word of ranks first, first + 1, ..., kLoadBatch of them, and takes them.
/// False if the group gave up.
template <Executor Exec, class Take>
EP_HOST_DEVICE bool await_batch(const OpContext<Exec>& op,
                                WaitSite site,
                                const TaggedWords& words,
                                int word,
                                int first_rank,
                                Take take) {
  TaggedLook<Exec> look(words, word, first_rank);
  for (int missing = look.find_missing(op.tag()); missing >= 0;
       missing = look.find_missing(op.tag())) {
    const std::uint64_t* late = words.at(word, missing);
    const bool is_here = poll_until(op, {site, missing, op.tag()}, [&] {
      return std::uint64_t{layout::tag_in(Exec::Memory::load_relaxed_sys(late))};
    });
    if (!is_here) return false;
  }
  look.visit(take);
  return true;
}

/// Waits until all words carry the operation's tag; take(word, rank, value) is called for each: a
/// word's by one thread, in ascending rank. False if the group gave up.
template <Executor Exec, Coop G, class Take>
EP_HOST_DEVICE bool await_words(
    G group, const OpContext<Exec>& op, WaitSite site, const TaggedWords& words, Take take) {
  bool is_done = true;
  EP_NO_UNROLL
  for (int word = group.thread_rank(); word < words.words_per_rank; word += group.size()) {
    EP_NO_UNROLL
    for (int rank = 0; rank < words.num_ranks && is_done; rank += kLoadBatch)
      is_done = await_batch(op, site, words, word, rank, take);
  }
  return group.all(is_done);
}

}  // namespace ep::primitives
