// SPDX-License-Identifier: Apache-2.0
// One launch of a rank at a time: how lanes notice another one.
#pragma once

#include "layout/control.h"
#include "primitives/coop.h"
#include "primitives/op_context.h"
#include "primitives/wait.h"

#include <cstdint>

namespace ep::intranode {

/// A lane's entry into its launch. The launches of a rank follow one another; where a caller lets
/// two overlap, as two graph replays on different streams, each would take the other's tickets and
/// write by its tables. So lanes count themselves in a word that the last one to leave sets to
/// zero: a lane that finds lanes of another call there, or all lanes of its own launch, ends the
/// group.
template <primitives::Executor Exec>
class Entry {
 public:
  /// Before anything else. The answer is on its way while the lane does what only it can see.
  template <primitives::Coop G>
  EP_HOST_DEVICE Entry(G group, const primitives::OpContext<Exec>& op) {
    // Relaxed: lanes that find each other do not read what the other wrote.
    if (group.thread_rank() == 0)
      before_ = Exec::Memory::fetch_add_relaxed_gpu(&op.local()->busy.value, unit(op));
  }

  /// Before the lane's first effect that others see. False if the group gave up.
  template <primitives::Coop G>
  EP_HOST_DEVICE bool is_alone(G group, const primitives::OpContext<Exec>& op) const {
    const std::uint64_t before = group.broadcast(before_);
    const std::uint64_t lanes = layout::busy_lanes(before);
    const bool are_of_this_call = before == lanes * unit(op);
    if (are_of_this_call && lanes < static_cast<std::uint64_t>(op.params->num_lanes)) return true;
    // A launch that was queued behind a failed one finds its lanes, which nobody took out.
    if (group.thread_rank() == 0 && op.may_proceed())
      give_up<Exec>(op.params, op.epoch, {primitives::WaitSite::kAlone, op.rank(), 0}, lanes,
                    Exec::clock_ns(), false);
    return false;
  }

 private:
  EP_HOST_DEVICE static std::uint64_t unit(const primitives::OpContext<Exec>& op) {
    return layout::busy_unit(op.params->call);
  }

  std::uint64_t before_ = 0;
};

}  // namespace ep::intranode
