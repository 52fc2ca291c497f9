// SPDX-License-Identifier: Apache-2.0
// A wire of puts and signals of a NetEngine: what users of the network get.
#pragma once

#include "bench/wire.h"
#include "fabric/net/transport.h"

#include <ep/bootstrap.h>
#include <ep/status.h>

#include <memory>

namespace ep::bench {

/// Collective: an engine over this transport. A message that speaks for itself has a weak signal,
/// one that speaks for all before it a strong one.
Result<std::unique_ptr<Wire>> make_engine_wire(Bootstrap& bootstrap,
                                               std::unique_ptr<fabric::Transport> transport,
                                               const WireOptions& options);

}  // namespace ep::bench
