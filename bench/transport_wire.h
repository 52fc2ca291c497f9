// SPDX-License-Identifier: Apache-2.0
// A wire of writes and immediates of a Transport.
#pragma once

#include "bench/wire.h"
#include "fabric/net/transport.h"

#include <ep/bootstrap.h>
#include <ep/status.h>

#include <memory>

namespace ep::bench {

/// Collective: its memory becomes a window of the transport, which it keeps.
Result<std::unique_ptr<Wire>> make_transport_wire(Bootstrap& bootstrap,
                                                  std::unique_ptr<fabric::Transport> transport,
                                                  const WireOptions& options);

}  // namespace ep::bench
