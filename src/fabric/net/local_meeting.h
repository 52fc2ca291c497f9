// SPDX-License-Identifier: Apache-2.0
// How ranks that are threads of one process share out transports in memory.
#pragma once

#include "fabric/net/transport.h"

#include <ep/bootstrap.h>
#include <ep/status.h>

#include <chrono>
#include <memory>

namespace ep::fabric {

/// Collective. Errors, on all ranks: kUnsupported where a rank is in another process than rank 0;
/// those of make_local_transports and of the bootstrap.
Result<std::unique_ptr<Transport>> meet_locally(Bootstrap& bootstrap,
                                                const TransportTraits& traits,
                                                std::chrono::milliseconds timeout);

}  // namespace ep::fabric
