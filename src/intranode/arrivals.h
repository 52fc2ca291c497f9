// SPDX-License-Identifier: Apache-2.0
// How a rank tells its peers that what it stored there, or read there, is complete.
#pragma once

#include "intranode/protocol_steps.h"

#include <cstdint>

namespace ep::intranode {

/// The blocks that every rank announced for this operation.
template <primitives::Executor Exec>
struct BlockView {
  const primitives::OpContext<Exec>* op;

  EP_HOST_DEVICE std::byte* section(int rank, layout::Section section) const {
    return op->address_of(rank, op->value_from(rank, section));
  }
  /// As section(), before the verdict: null if the rank has not told yet.
  EP_HOST_DEVICE std::byte* section_if_here(int rank, layout::Section section) const {
    const std::uint64_t* fields = op->block_from(rank)->fields + layout::first_field_of(section);
    // Relaxed: the words carry their tag. What they allow is acquired with the verdict.
    const std::uint64_t segment = Exec::Memory::load_relaxed_sys(fields);
    const std::uint64_t offset = Exec::Memory::load_relaxed_sys(fields + 1);
    if (layout::tag_in(segment) != op->tag() || layout::tag_in(offset) != op->tag()) return nullptr;
    return op->address_of(rank, {layout::value_in(segment), layout::value_in(offset)});
  }
  template <class T>
  EP_HOST_DEVICE T* array(int rank, layout::Section kind) const {
    return layout::array_at<T>(section(rank, kind), 0);
  }
};

/// Scratch of a lane that tells peers how many pairs it sent.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE std::int64_t* clear_tally(G group,
                                         const primitives::OpContext<Exec>& op,
                                         const primitives::Lane& lane) {
  auto* tally = layout::array_at<std::int64_t>(lane.scratch, 0);
  primitives::for_each_strided(group, op.num_ranks(), [&](std::int64_t rank) { tally[rank] = 0; });
  group.sync();
  return tally;
}

/// One release per (lane, peer): all that this lane stored there has landed.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void add_arrivals(G group,
                                 const primitives::OpContext<Exec>& op,
                                 std::int64_t counters,
                                 const std::int64_t* tally) {
  group.sync();
  primitives::for_each_strided(group, op.num_ranks(), [&](std::int64_t peer) {
    if (tally[peer] == 0) return;
    auto* arrived =
        op.template array_of<layout::Counter>(static_cast<int>(peer), counters) + op.rank();
    // [sync:arrive] [sync:pulled] [sync:returned] release: rows, records, reads. Acquired in
    // await_growth.
    Exec::Memory::add_release_sys(&arrived->value, static_cast<std::uint64_t>(tally[peer]));
  });
}

}  // namespace ep::intranode
