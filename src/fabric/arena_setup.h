// SPDX-License-Identifier: Apache-2.0
// Creation of an arena, whatever its memory.
#pragma once

#include "base/deadline.h"
#include "fabric/arena_state.h"
#include "fabric/segment_memory.h"

#include <ep/bootstrap.h>
#include <ep/status.h>

#include <cstdint>
#include <memory>

namespace ep::fabric {

/// Collective. Nodes are runs of ranks, `node` is this rank's. On return segment 0 of every rank of
/// the node is mapped here. The failure of one rank, also to get its `memory`, is the failure of
/// all.
Result<std::unique_ptr<ArenaState>> create_arena_state(
    Bootstrap& bootstrap,
    Result<std::unique_ptr<SegmentMemory>> memory,
    std::int64_t control_bytes,
    int node,
    base::Deadline deadline);

}  // namespace ep::fabric
