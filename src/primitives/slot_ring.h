// SPDX-License-Identifier: Apache-2.0
// The bounded ring through which an owner sends the rows of a token's rank, one per pair.
//
// The pairs of an owner and a reader are numbered densely. Pair p uses row p % ring_rows of the
// reader's memory and has two words of its own, `ready` at the reader and `freed` at the writer,
// which carry the operation's epoch: rows may be read in any order and nothing is ever reset. A
// writer waits for the pair that had the row before, p - ring_rows.
#pragma once

#include "primitives/wait.h"

#include <cstdint>

namespace ep::primitives {

template <Executor Exec>
class SlotRing {
 public:
  using Memory = typename Exec::Memory;

  EP_HOST_DEVICE explicit SlotRing(const OpContext<Exec>& op) : op_(&op) {}

  /// Writer: waits until pairs [first, first + count) may be written; count <= ring_rows. False if
  /// the group gave up.
  template <Coop G>
  EP_HOST_DEVICE bool acquire(G group, int reader, std::int64_t first, int count) const {
    const std::int64_t num_rows = control().shape.ring_rows();
    if (first + count <= num_rows) return true;
    const auto* freed = op_->template array<std::uint64_t>(control().ring_freed);
    bool is_free = true;
    for (int i = group.thread_rank(); i < count && is_free; i += group.size()) {
      const std::int64_t previous = first + i - num_rows;
      if (previous < 0) continue;
      is_free = poll_until(*op_, {WaitSite::kRingFreed, reader, op_->epoch}, [&] {
        // [sync:ring-freed] acquire: the reader's loads of this row are over
        return Memory::load_acquire_sys(freed + control().token_index(reader, previous));
      });
    }
    return group.all(is_free);
  }

  /// Writer: where the pair lies at the reader.
  EP_HOST_DEVICE std::byte* row_at(int reader, std::int64_t pair) const {
    return op_->template array_of<std::byte>(reader, control().ring_row(op_->rank(), pair));
  }

  /// Writer: pairs [first, first + count) are complete; their stores were drained by this lane.
  template <Coop G>
  EP_HOST_DEVICE void publish(G group, int reader, std::int64_t first, int count) const {
    auto* ready = op_->template array_of<std::uint64_t>(reader, control().ring_ready) +
                  control().token_index(op_->rank(), first);
    group.sync();
    for_each_strided(group, count, [&](std::int64_t i) {
      // [sync:ring-ready] release: the rows of the pairs. Acquired in await_all, are_here.
      Memory::store_release_sys(ready + i, op_->epoch);
    });
  }

  /// Reader: where the pair of `writer` lies.
  EP_HOST_DEVICE const std::byte* row_from(int writer, std::int64_t pair) const {
    return op_->template array<std::byte>(control().ring_row(writer, pair));
  }

  /// Reader: one pair of each writer, pairs[writer]; -1: none. True if all of them are there.
  template <Coop G>
  EP_HOST_DEVICE bool are_here(G group, const std::int32_t* pairs) const {
    bool are_here = true;
    for_each_strided(group, op_->num_ranks(), [&](std::int64_t writer) {
      if (pairs[writer] < 0) return;
      const std::uint64_t* ready = ready_word(static_cast<int>(writer), pairs[writer]);
      are_here &= Memory::load_acquire_sys(ready) == op_->epoch;  // [sync:ring-ready] acquire
    });
    return group.all(are_here);
  }

  /// Reader: waits for pairs as are_here says. False if the group gave up.
  template <Coop G>
  EP_HOST_DEVICE bool await_all(G group, const std::int32_t* pairs) const {
    return wait_for_all(group, *op_, WaitSite::kRingReady, op_->epoch, [&](int writer) {
      if (pairs[writer] < 0) return op_->epoch;
      return Memory::load_acquire_sys(
          ready_word(writer, pairs[writer]));  // [sync:ring-ready] acquire
    });
  }

  /// Reader: nothing of pairs[writer] of any writer will be read again.
  template <Coop G>
  EP_HOST_DEVICE void release(G group, const std::int32_t* pairs) const {
    group.sync();
    for_each_strided(group, op_->num_ranks(), [&](std::int64_t i) {
      const int writer = static_cast<int>(i);
      if (pairs[writer] < 0) return;
      auto* freed = op_->template array_of<std::uint64_t>(writer, control().ring_freed);
      // [sync:ring-freed] release: this reader's loads of the row. Acquired in acquire.
      Memory::store_release_sys(freed + control().token_index(op_->rank(), pairs[writer]),
                                op_->epoch);
    });
  }

 private:
  EP_HOST_DEVICE const layout::ControlLayout& control() const { return op_->control(); }
  EP_HOST_DEVICE const std::uint64_t* ready_word(int writer, std::int64_t pair) const {
    return op_->template array<std::uint64_t>(control().ring_ready) +
           control().token_index(writer, pair);
  }

  const OpContext<Exec>* op_;
};

}  // namespace ep::primitives
