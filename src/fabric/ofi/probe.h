// SPDX-License-Identifier: Apache-2.0
// The start-up test: what a network does, not what it says.
#pragma once

#include "base/deadline.h"
#include "fabric/net/transport.h"

#include <ep/bootstrap.h>
#include <ep/status.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace ep::fabric {

/// What the test needs of memory.
inline constexpr std::int64_t kProbeBytes = std::int64_t{2 * 256 + 1} * 4096;

/// In a larger group a rank meets only its neighbours, and the others when it first needs them.
inline constexpr int kMaxMetRanks = 64;

struct ProbeFindings {
  /// Every immediate came behind all earlier writes of its context, with and without immediates.
  bool is_ordered = false;
};

/// Collective. On every context, with every peer: an immediate without bytes arrives, from the rank
/// that sent it. With the next rank: some hundred writes, each with an immediate behind all of its
/// bytes, in the order that is reported; and a read. `scratch` (kProbeBytes) becomes a window and
/// must outlive it. Errors: kUnsupported with what was seen; kPeerTimeout with the rank
/// that was not heard; what the transport or the bootstrap says.
Result<ProbeFindings> probe_transport(Transport& transport,
                                      Bootstrap& bootstrap,
                                      std::span<std::byte> scratch,
                                      base::Deadline deadline);

}  // namespace ep::fabric
