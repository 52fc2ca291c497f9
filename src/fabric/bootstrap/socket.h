// SPDX-License-Identifier: Apache-2.0
// Listening and connecting, over TCP or an abstract Unix socket. All sockets are non-blocking and
// close-on-exec.
#pragma once

#include "base/deadline.h"
#include "base/unique_fd.h"
#include "fabric/bootstrap/environment.h"

#include <ep/status.h>

#include <optional>
#include <string>
#include <sys/socket.h>
#include <vector>

namespace ep::fabric {

/// A resolved address, ready for bind() or connect().
struct Endpoint {
  sockaddr_storage address{};
  socklen_t address_bytes = 0;
  std::string text;  ///< "10.0.0.1:29500"

  int family() const { return address.ss_family; }
  const sockaddr* get() const;
};

/// Where rank 0 listens, in the order to try. Errors: kInvalidArgument where the host name does not
/// resolve.
Result<std::vector<Endpoint>> listen_endpoints(const RendezvousSettings& settings);
/// Where the others connect.
Result<std::vector<Endpoint>> connect_endpoints(const RendezvousSettings& settings);

/// The first endpoint that is free. Errors: kFabric naming the last one tried and errno ("Address
/// already in use").
Result<base::UniqueFd> listen_on(const std::vector<Endpoint>& endpoints, int backlog);

/// The next connection; nothing where none waits.
std::optional<base::UniqueFd> accept_from(int listener);

/// Errors: kFabric ("Connection refused"), kPeerTimeout.
Result<base::UniqueFd> connect_to(const Endpoint& endpoint, base::Deadline deadline);

/// False for the other end of a Unix socket that belongs to another user; true for TCP, where
/// nobody can tell.
bool is_trusted_user(int fd);

}  // namespace ep::fabric
