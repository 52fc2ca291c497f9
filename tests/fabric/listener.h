// SPDX-License-Identifier: Apache-2.0
// A TCP port of a test, listened on or known to be free.
#pragma once

#include "base/unique_fd.h"

#include <cstdint>
#include <netinet/in.h>
#include <sys/socket.h>

namespace ep::test {

struct TcpListener {
  base::UniqueFd fd;
  int port = 0;
};

/// On loopback; port 0: a free one. `fd` is closed where the port is in use.
inline TcpListener listen_on_loopback(int port = 0) {
  TcpListener listener;
  listener.fd = base::UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const generic = static_cast<sockaddr*>(static_cast<void*>(&address));
  socklen_t bytes = sizeof(address);
  if (::bind(listener.fd.get(), generic, bytes) != 0 || ::listen(listener.fd.get(), 16) != 0 ||
      ::getsockname(listener.fd.get(), generic, &bytes) != 0) {
    listener.fd.reset();
  }
  listener.port = ntohs(address.sin_port);
  return listener;
}

/// Free a moment ago.
inline int free_port() { return listen_on_loopback().port; }

}  // namespace ep::test
