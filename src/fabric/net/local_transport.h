// SPDX-License-Identifier: Apache-2.0
// A Transport in memory, for ranks that are threads of one process.
#pragma once

#include "fabric/net/transport.h"

#include <ep/status.h>

#include <memory>
#include <vector>

namespace ep::fabric {

/// One transport per rank, with these traits; the name is "local". Deliveries of a context from one
/// peer are made in order under both values of `order`: kUnordered only promises nothing.
///
/// The receiver copies, when it polls: whoever does not poll receives nothing, and a source that
/// changes before kSourceFree arrives changed. A transport that is destroyed takes with it what it
/// has not received: the senders get kFailure with ECONNRESET, and kBusy from then on; what it has
/// sent and nobody received is lost.
///
/// Errors: kInvalidArgument for less than one rank, context, byte or operation.
Result<std::vector<std::unique_ptr<Transport>>> make_local_transports(
    int num_ranks, const TransportTraits& traits);

}  // namespace ep::fabric
