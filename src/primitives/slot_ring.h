// SPDX-License-Identifier: Apache-2.0
// The bounded ring through which an owner sends reduced rows to a token's rank, chunk by chunk.
//
// Chunk c uses slot c % ring_slots at the reader; a chunk without rows uses none. Each chunk has
// two words of its own, `ready` at the reader and `freed` at the writer, which carry the
// operation's epoch: chunks may be read in any order and nothing is ever reset. A writer waits for
// the chunk that had its slot before, which is the last earlier one with rows whose number is equal
// mod ring_slots.
#pragma once

#include "primitives/wait.h"

#include <cstdint>

namespace ep::primitives {

template <Executor Exec>
class SlotRing {
 public:
  using Memory = typename Exec::Memory;

  EP_HOST_DEVICE explicit SlotRing(const OpContext<Exec>& op) : op_(&op) {}

  /// Writer: the slot at `reader` in which this rank may write the chunk, once `previous` (the
  /// chunk that had the slot before, < 0: none) was read; null if the group gave up.
  template <Coop G>
  EP_HOST_DEVICE std::byte* acquire_slot(G group,
                                         int reader,
                                         std::int64_t chunk,
                                         std::int64_t previous) const {
    const layout::ControlLayout& control = op_->control();
    if (previous >= 0) {
      auto* freed = op_->template array<std::uint64_t>(control.ring_freed) +
                    control.chunk_index(reader, previous);
      const bool is_free = wait_until(group, *op_, {WaitSite::kRingFreed, reader, op_->epoch}, [&] {
        // [sync:ring-freed] acquire: the reader's loads of this slot are over
        return Memory::load_acquire_sys(freed);
      });
      if (!is_free) return nullptr;
    }
    return op_->template array_of<std::byte>(reader, control.ring_slot(op_->rank(), chunk));
  }

  /// Writer: the chunk is complete; its stores were drained by this lane.
  template <Coop G>
  EP_HOST_DEVICE void publish(G group, int reader, std::int64_t chunk) const {
    const layout::ControlLayout& control = op_->control();
    auto* ready = op_->template array_of<std::uint64_t>(reader, control.ring_ready);
    group.sync();
    if (group.thread_rank() == 0) {
      // [sync:ring-ready] release: the rows of the chunk. Acquired in await.
      Memory::store_release_sys(ready + control.chunk_index(op_->rank(), chunk), op_->epoch);
    }
  }

  /// Reader: the rows of the chunk from `writer`; null if the group gave up.
  template <Coop G>
  EP_HOST_DEVICE const std::byte* await(G group, int writer, std::int64_t chunk) const {
    const layout::ControlLayout& control = op_->control();
    auto* ready =
        op_->template array<std::uint64_t>(control.ring_ready) + control.chunk_index(writer, chunk);
    const bool is_ready = wait_until(group, *op_, {WaitSite::kRingReady, writer, op_->epoch}, [&] {
      return Memory::load_acquire_sys(ready);  // [sync:ring-ready] acquire
    });
    return is_ready ? op_->template array<std::byte>(control.ring_slot(writer, chunk)) : nullptr;
  }

  /// Reader: nothing of the chunk, which had rows, will be read again.
  template <Coop G>
  EP_HOST_DEVICE void release(G group, int writer, std::int64_t chunk) const {
    const layout::ControlLayout& control = op_->control();
    auto* freed = op_->template array_of<std::uint64_t>(writer, control.ring_freed);
    group.sync();
    if (group.thread_rank() == 0) {
      // [sync:ring-freed] release: this reader's loads of the slot. Acquired in acquire_slot.
      Memory::store_release_sys(freed + control.chunk_index(op_->rank(), chunk), op_->epoch);
    }
  }

 private:
  const OpContext<Exec>* op_;
};

}  // namespace ep::primitives
