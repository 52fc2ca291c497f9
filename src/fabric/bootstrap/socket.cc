// SPDX-License-Identifier: Apache-2.0
// Listening and connecting.
#include "fabric/bootstrap/socket.h"

#include "base/check.h"
#include "base/errno_status.h"
#include "base/hash.h"
#include "fabric/bootstrap/wire.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <errno.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

namespace ep::fabric {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Endpoint make_endpoint(const sockaddr* address, socklen_t bytes, std::string text) {
  Endpoint endpoint;
  std::memcpy(&endpoint.address, address, bytes);
  endpoint.address_bytes = bytes;
  endpoint.text = std::move(text);
  return endpoint;
}

/// The leading 0 byte makes the name abstract: no file, and it goes with the last descriptor.
Endpoint unix_endpoint(const RendezvousSettings& settings) {
  std::array<char, 16> hash{};
  const auto end =
      std::to_chars(hash.data(), hash.data() + hash.size(), base::fnv1a_64(settings.job_id), 16);
  const std::string name =
      "ep-bootstrap." + std::to_string(::geteuid()) + "." + std::string(hash.data(), end.ptr);
  sockaddr_storage storage{};
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  EP_CHECK(name.size() + 1 <= sizeof(address.sun_path));
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  std::memcpy(&storage, &address, sizeof(address));
  Endpoint endpoint;
  endpoint.address = storage;
  endpoint.address_bytes =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  endpoint.text = "abstract socket " + name;
  return endpoint;
}

/// `flags` as of getaddrinfo; a null host is the wildcard (with AI_PASSIVE).
Result<std::vector<Endpoint>> resolve(const char* host, int port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port_text = std::to_string(port);
  const int error = ::getaddrinfo(host, port_text.c_str(), &hints, &found);
  const AddressList list(found, &::freeaddrinfo);
  const std::string shown = std::string(host == nullptr ? "*" : host) + ":" + port_text;
  if (error != 0) {
    return Status(Errc::kInvalidArgument,
                  "bootstrap: address " + shown + ": " + ::gai_strerror(error), error);
  }
  std::vector<Endpoint> endpoints;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    endpoints.push_back(make_endpoint(info->ai_addr, info->ai_addrlen, shown));
  }
  return endpoints;
}

/// On one host nobody outside may even connect, whatever name the launcher gave to the host.
std::string host_to_use(const RendezvousSettings& settings) {
  std::string host = settings.host.value_or("127.0.0.1");
  return settings.is_single_host && !is_loopback_name(host) ? "127.0.0.1" : host;
}

Result<base::UniqueFd> open_socket(const Endpoint& endpoint) {
  constexpr int kType = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
  base::UniqueFd fd(::socket(endpoint.family(), kType, 0));
  if (!fd.is_open()) return base::errno_status("bootstrap: socket for " + endpoint.text, errno);
  return fd;
}

void set_option(int fd, int level, int option, int value) {
  // Best effort: a socket without the option works too.
  static_cast<void>(::setsockopt(fd, level, option, &value, sizeof(value)));
}

void set_stream_options(int fd, int family) {
  // Frames are written whole; waiting to fill a segment only adds latency.
  if (family != AF_UNIX) set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
}

Result<base::UniqueFd> listen_at(const Endpoint& endpoint, int backlog) {
  EP_TRY_ASSIGN(base::UniqueFd fd, open_socket(endpoint));
  // A port of which only finished connections are left is free; one that is listened on stays in
  // use.
  if (endpoint.family() != AF_UNIX) set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  // The wildcard of IPv6 takes IPv4 too.
  if (endpoint.family() == AF_INET6) set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(fd.get(), endpoint.get(), endpoint.address_bytes) != 0 ||
      ::listen(fd.get(), backlog) != 0) {
    return base::errno_status("bootstrap: listen on " + endpoint.text, errno);
  }
  return fd;
}

}  // namespace

const sockaddr* Endpoint::get() const {
  return static_cast<const sockaddr*>(static_cast<const void*>(&address));
}

Result<std::vector<Endpoint>> listen_endpoints(const RendezvousSettings& settings) {
  if (!settings.host) return std::vector<Endpoint>{unix_endpoint(settings)};
  const std::string loopback = host_to_use(settings);
  const char* host = settings.is_single_host ? loopback.c_str() : nullptr;
  std::vector<Endpoint> endpoints;
  for (int port : settings.ports) {
    EP_TRY_ASSIGN(std::vector<Endpoint> found, resolve(host, port, AI_PASSIVE));
    // IPv6 first: its wildcard covers both, that of IPv4 does not.
    std::stable_partition(found.begin(), found.end(),
                          [](const Endpoint& endpoint) { return endpoint.family() == AF_INET6; });
    endpoints.insert(endpoints.end(), found.begin(), found.end());
  }
  return endpoints;
}

Result<std::vector<Endpoint>> connect_endpoints(const RendezvousSettings& settings) {
  if (!settings.host) return std::vector<Endpoint>{unix_endpoint(settings)};
  std::vector<Endpoint> endpoints;
  for (int port : settings.ports) {
    EP_TRY_ASSIGN(const std::vector<Endpoint> found,
                  resolve(host_to_use(settings).c_str(), port, 0));
    endpoints.insert(endpoints.end(), found.begin(), found.end());
  }
  return endpoints;
}

Result<base::UniqueFd> listen_on(const std::vector<Endpoint>& endpoints, int backlog) {
  Status last(Errc::kInternal, "bootstrap: no address to listen on");
  for (const Endpoint& endpoint : endpoints) {
    Result<base::UniqueFd> listener = listen_at(endpoint, backlog);
    if (listener.ok()) return listener;
    last = listener.status();
  }
  return last;
}

std::optional<base::UniqueFd> accept_from(int listener) {
  while (true) {
    base::UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.is_open()) {
      sockaddr_storage address{};
      socklen_t bytes = sizeof(address);
      auto* const generic = static_cast<sockaddr*>(static_cast<void*>(&address));
      if (::getsockname(fd.get(), generic, &bytes) == 0) {
        set_stream_options(fd.get(), address.ss_family);
      }
      return fd;
    }
    // A connection that went away while it waited; the next one may be fine.
    if (errno != EINTR && errno != ECONNABORTED) return std::nullopt;
  }
}

Result<base::UniqueFd> connect_to(const Endpoint& endpoint, base::Deadline deadline) {
  EP_TRY_ASSIGN(base::UniqueFd fd, open_socket(endpoint));
  set_stream_options(fd.get(), endpoint.family());
  const std::string what = "bootstrap: connect to " + endpoint.text;
  if (::connect(fd.get(), endpoint.get(), endpoint.address_bytes) == 0) return fd;
  // EAGAIN is a Unix socket with a full backlog: not connected, to be tried again like a refusal.
  if (errno != EINPROGRESS && errno != EINTR) return base::errno_status(what, errno);
  if (!wait_for(fd.get(), POLLOUT, deadline)) {
    return Status(Errc::kPeerTimeout, what + ": no answer within the deadline");
  }
  int error = 0;
  socklen_t bytes = sizeof(error);
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
  if (error != 0) return base::errno_status(what, error);
  return fd;
}

bool is_trusted_user(int fd) {
  int family = 0;
  socklen_t bytes = sizeof(family);
  if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &bytes) != 0) return false;
  if (family != AF_UNIX) return true;
  ucred peer{};
  bytes = sizeof(peer);
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == ::geteuid();
}

}  // namespace ep::fabric
