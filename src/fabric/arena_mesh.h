// SPDX-License-Identifier: Apache-2.0
// One connection between every two arenas of a host, each end sure of the other's process.
#pragma once

#include "base/deadline.h"
#include "base/unique_fd.h"
#include "fabric/arena_identity.h"

#include <ep/status.h>

#include <string>
#include <vector>

namespace ep::fabric {

/// A listening abstract socket with a name that the kernel chose.
struct ArenaListener {
  base::UniqueFd fd;
  std::string name;
};

/// Errors: kFabric.
Result<ArenaListener> open_arena_listener(int num_ranks);

/// The end of a connection that leads to a peer. Empty for the rank itself.
struct ArenaConnection {
  base::UniqueFd socket;
  /// Becomes readable when the peer's process ends, also where a child of it holds the socket open.
  /// Closed for a peer of this process, and where the kernel has no pidfd.
  base::UniqueFd process;
};

/// Connects to the lower ranks of the same node and is connected to by the higher ones. A
/// connection from another user, from a process that no rank announced, or without the right token
/// is closed and nothing else. Errors: kPeerTimeout naming the ranks that did not come; kFabric
/// where a listener belongs to another process.
Result<std::vector<ArenaConnection>> connect_arenas(const std::vector<ArenaIdentity>& identities,
                                                    int rank,
                                                    const ArenaListener& listener,
                                                    base::Deadline deadline);

}  // namespace ep::fabric
