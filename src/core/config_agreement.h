// SPDX-License-Identifier: Apache-2.0
// All ranks of a group must be created with the same configuration.
#pragma once

#include "core/group_state.h"

#include <ep/bootstrap.h>
#include <ep/status.h>

namespace ep::core {

/// Collective. Every rank learns every rank's configuration, also where it is refused locally
/// (`local` not ok): the result is then kInvalidArgument on all ranks. A difference names the
/// field, the ranks and both values.
Status agree_on_config(Bootstrap& bootstrap, const Result<ResolvedConfig>& local);

/// Collective: kFabric on every rank if any rank's `local` is not ok, which returns its own. No
/// rank goes on, or away, before all have come this far. `step` ends the sentence "rank 3 could
/// not".
Status agree_on_outcome(Bootstrap& bootstrap,
                        const Status& local,
                        const char* step,
                        std::chrono::milliseconds timeout);

}  // namespace ep::core
