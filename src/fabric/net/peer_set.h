// SPDX-License-Identifier: Apache-2.0
// A set of ranks that is walked in turn, so that none is always last.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ep::fabric {

class PeerSet {
 public:
  explicit PeerSet(int num_ranks) : words_(num_words(num_ranks)) {}

  void insert(int peer) { word(peer) |= bit(peer); }
  void erase(int peer) { word(peer) &= ~bit(peer); }
  bool contains(int peer) const {
    return (words_[static_cast<std::size_t>(peer) / kWordBits] & bit(peer)) != 0;
  }

  /// Calls visit(peer) for each member of now, beginning one word further each time. A visitor may
  /// insert and erase.
  template <class Visit>
  void for_each(Visit visit) {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      const std::size_t at = (first_ + i) % words_.size();
      // Within a word the walk begins one bit further each time, too.
      visit_word(at, std::rotr(words_[at], static_cast<int>(turn_)), visit);
    }
    turn_ = (turn_ + 1) % kWordBits;
    first_ = (first_ + 1) % words_.size();
  }

  std::int64_t memory_bytes() const {
    return static_cast<std::int64_t>(words_.capacity() * sizeof(std::uint64_t));
  }
  static std::int64_t planned_bytes(int num_ranks) {
    return static_cast<std::int64_t>(num_words(num_ranks) * sizeof(std::uint64_t));
  }

 private:
  static constexpr std::size_t kWordBits = 64;

  static std::size_t num_words(int num_ranks) {
    return (static_cast<std::size_t>(num_ranks) + kWordBits - 1) / kWordBits;
  }
  std::uint64_t& word(int peer) { return words_[static_cast<std::size_t>(peer) / kWordBits]; }
  static std::uint64_t bit(int peer) {
    return std::uint64_t{1} << (static_cast<std::size_t>(peer) % kWordBits);
  }

  template <class Visit>
  void visit_word(std::size_t at, std::uint64_t rotated, Visit& visit) {
    for (; rotated != 0; rotated &= rotated - 1) {
      const std::size_t in_word =
          (static_cast<std::size_t>(std::countr_zero(rotated)) + turn_) % kWordBits;
      visit(static_cast<int>(at * kWordBits + in_word));
    }
  }

  std::vector<std::uint64_t> words_;
  std::size_t first_ = 0;
  std::size_t turn_ = 0;
};

}  // namespace ep::fabric
