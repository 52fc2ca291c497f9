// SPDX-License-Identifier: Apache-2.0
// Which network a group of several nodes uses.
#pragma once

#include "base/deadline.h"
#include "fabric/net/transport.h"

#include <ep/bootstrap.h>
#include <ep/config.h>
#include <ep/status.h>

#include <memory>

namespace ep::core {

/// Collective. Errors: kUnsupported for a provider that is not here, or chaos that this build does
/// not have; those of the provider.
Result<std::unique_ptr<fabric::Transport>> make_net_transport(Bootstrap& bootstrap,
                                                              const NetOptions& options,
                                                              int num_contexts,
                                                              base::Deadline deadline);

}  // namespace ep::core
