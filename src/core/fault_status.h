// SPDX-License-Identifier: Apache-2.0
// Turns what the roles left in the control region into a Status.
#pragma once

#include "core/group_state.h"
#include "layout/announcement.h"

#include <ep/status.h>

#include <cstdint>
#include <string>

namespace ep::core {

/// "dispatch", "combine", ...
const char* name_of(layout::OpKind kind);

/// ok, or the group's first fault.
Status fault_status(const GroupState& state);

/// Why the ranks refused operation `epoch`, from their announcements: the rank that rejected its
/// arguments, or the field in which they differ. Precondition: the verdict was kRejected or
/// kBlockRejected.
Status rejection_status(const GroupState& state, layout::OpKind kind, std::uint64_t epoch);

}  // namespace ep::core
