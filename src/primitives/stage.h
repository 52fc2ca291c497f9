// SPDX-License-Identifier: Apache-2.0
// Stages order the roles of one rank: lanes add what they finished, others wait for the sum.
#pragma once

#include "layout/control.h"
#include "primitives/wait.h"

#include <cstdint>

namespace ep::primitives {

/// Adds `amount` finished units; publishes everything that the group wrote before.
template <Executor Exec, Coop G>
EP_HOST_DEVICE void stage_complete(G group,
                                   const OpContext<Exec>& op,
                                   layout::Stage stage,
                                   std::int64_t amount) {
  group.sync();
  if (group.thread_rank() == 0) {
    // [sync:stage] release: tables of this rank. Acquired in stage_wait.
    Exec::Memory::add_release_gpu(op.stage(stage), static_cast<std::uint64_t>(amount));
  }
}

/// Waits until `total` units are finished.
template <Executor Exec, Coop G>
EP_HOST_DEVICE bool stage_wait(G group,
                               const OpContext<Exec>& op,
                               layout::Stage stage,
                               std::int64_t total) {
  constexpr WaitSite kSites[] = {WaitSite::kCounted,  WaitSite::kTallied, WaitSite::kScanned,
                                 WaitSite::kPrepared, WaitSite::kIndexed, WaitSite::kGrouped,
                                 WaitSite::kResolved};
  const WaitFor wait{kSites[static_cast<int>(stage)], op.rank(), static_cast<std::uint64_t>(total)};
  return wait_until(group, op, wait, [&] {
    return Exec::Memory::load_acquire_gpu(op.stage(stage));  // [sync:stage] acquire
  });
}

}  // namespace ep::primitives
