// SPDX-License-Identifier: Apache-2.0
// Turns what the roles left in the control region into a Status.
#pragma once

#include "core/group_state.h"
#include "layout/announcement.h"
#include "layout/report.h"

#include <ep/status.h>

namespace ep::core {

/// "dispatch", "combine", ...
const char* name_of(layout::OpKind kind);

/// ok, or the group's first fault. On an engine that is not synchronous: once a role of this rank
/// has met it.
Status fault_status(const GroupState& state);

/// Why the ranks refused the operation of a report: the rank that rejected its arguments, or the
/// field in which they differ. Precondition: there is one.
Status rejection_status(const layout::OpReport& report, int rank);

}  // namespace ep::core
