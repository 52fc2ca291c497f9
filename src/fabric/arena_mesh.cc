// SPDX-License-Identifier: Apache-2.0
// One connection between every two arenas of a host.
#include "fabric/arena_mesh.h"

#include "base/check.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "fabric/arena_message.h"
#include "fabric/bootstrap/keyed_hash.h"
#include "fabric/bootstrap/rank_list.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <errno.h>
#include <optional>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

namespace ep::fabric {
namespace {

/// Packets keep their borders, so that a message is whole or not there.
constexpr int kSocketType = SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC;
/// While a listener's queue is full.
constexpr std::chrono::milliseconds kRetryInterval{5};
/// Strangers in the queue must not keep ranks out.
constexpr int kSpareBacklog = 128;

const sockaddr* generic(const sockaddr_un& address) {
  return static_cast<const sockaddr*>(static_cast<const void*>(&address));
}

/// Another user's process, or one that is none of the ranks, is a stranger.
bool is_process(int socket, const ArenaIdentity& identity) {
  ucred peer{};
  socklen_t bytes = sizeof(peer);
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
         peer.uid == ::geteuid() && peer.pid == identity.pid;
}

base::UniqueFd open_process(const ArenaIdentity& peer, const ArenaIdentity& self) {
  if (peer.is_same_process(self)) return {};
  // No wrapper in the C library of Debian 12. Without pidfd (or where a sandbox forbids it) the
  // socket alone tells.
  return base::UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
}

class MeshBuilder {
 public:
  MeshBuilder(const std::vector<ArenaIdentity>& identities,
              int rank,
              const ArenaListener& listener,
              base::Deadline deadline)
      : identities_(identities),
        rank_(rank),
        listener_(listener),
        deadline_(deadline),
        connections_(identities.size()) {}

  Result<std::vector<ArenaConnection>> build();

 private:
  Status connect(int peer);
  Result<base::UniqueFd> open_connection(int peer) const;
  Status accept_all();
  void serve_once();
  void accept_candidates();
  bool advance(base::UniqueFd& candidate);
  std::vector<int> missing_ranks() const;

  /// Of the node of this rank.
  bool is_near(int peer) const {
    return identities_[static_cast<std::size_t>(peer)].node == self().node;
  }
  const ArenaIdentity& self() const { return identities_[static_cast<std::size_t>(rank_)]; }
  ArenaConnection& connection(int peer) { return connections_[static_cast<std::size_t>(peer)]; }

  const std::vector<ArenaIdentity>& identities_;
  const int rank_;
  const ArenaListener& listener_;
  const base::Deadline deadline_;
  std::vector<ArenaConnection> connections_;
  /// Accepted, hello not yet received.
  std::vector<base::UniqueFd> candidates_;
};

Result<std::vector<ArenaConnection>> MeshBuilder::build() {
  for (int peer = 0; peer < rank_; ++peer) {
    if (is_near(peer)) EP_TRY(connect(peer));
  }
  EP_TRY(accept_all());
  return std::move(connections_);
}

Result<base::UniqueFd> MeshBuilder::open_connection(int peer) const {
  const std::string& name = identities_[static_cast<std::size_t>(peer)].socket_name;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof(address.sun_path)) {
    return Status(Errc::kFabric, "arena: socket name of " + std::to_string(name.size()) + " bytes");
  }
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  while (true) {
    base::UniqueFd fd(::socket(AF_UNIX, kSocketType, 0));
    if (!fd.is_open()) return base::errno_status("arena: socket", errno);
    if (::connect(fd.get(), generic(address), bytes) == 0) return fd;
    // A full queue; everything else lasts.
    if (errno != EAGAIN) return base::errno_status("arena: connect", errno);
    if (deadline_.expired()) return Status(Errc::kPeerTimeout, "arena: does not accept");
    static_cast<void>(::poll(nullptr, 0, static_cast<int>(kRetryInterval.count())));
  }
}

Status MeshBuilder::connect(int peer) {
  const ArenaIdentity& identity = identities_[static_cast<std::size_t>(peer)];
  Result<base::UniqueFd> fd = open_connection(peer);
  Status status = fd.status();
  if (status.ok() && !is_process(fd->get(), identity)) {
    status = Status(Errc::kFabric, "arena: the listener is not process " +
                                       std::to_string(identity.pid) + " of this user");
  }
  if (status.ok()) {
    const ArenaMessage hello{
        .kind = ArenaMessageKind::kHello, .rank = rank_, .token = identity.token};
    status = send_message(fd->get(), hello, -1, deadline_);
  }
  if (!status.ok()) {
    Status named(status.code(), "rank " + std::to_string(peer) + ": " + status.message(),
                 status.native_code());
    return named.set_peer(peer);
  }
  connection(peer) = {.socket = std::move(*fd), .process = open_process(identity, self())};
  return Status();
}

std::vector<int> MeshBuilder::missing_ranks() const {
  std::vector<int> missing;
  for (std::size_t peer = 0; peer < connections_.size(); ++peer) {
    const bool is_expected = static_cast<int>(peer) != rank_ && is_near(static_cast<int>(peer));
    if (is_expected && !connections_[peer].socket.is_open())
      missing.push_back(static_cast<int>(peer));
  }
  return missing;
}

Status MeshBuilder::accept_all() {
  for (std::vector<int> missing = missing_ranks(); !missing.empty(); missing = missing_ranks()) {
    if (deadline_.expired()) {
      Status status(Errc::kPeerTimeout, "arena: did not connect: rank " + list_ranks(missing));
      return status.set_peer(missing.front());
    }
    serve_once();
  }
  return Status();
}

void MeshBuilder::serve_once() {
  std::vector<pollfd> entries = {{.fd = listener_.fd.get(), .events = POLLIN, .revents = 0}};
  for (const base::UniqueFd& candidate : candidates_) {
    entries.push_back({.fd = candidate.get(), .events = POLLIN, .revents = 0});
  }
  static_cast<void>(::poll(entries.data(), entries.size(), deadline_.remaining_ms()));
  std::vector<base::UniqueFd> waiting;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    const bool is_done = entries[i + 1].revents != 0 && advance(candidates_[i]);
    if (!is_done) waiting.push_back(std::move(candidates_[i]));
  }
  candidates_ = std::move(waiting);
  if (entries[0].revents != 0) accept_candidates();
}

void MeshBuilder::accept_candidates() {
  while (true) {
    base::UniqueFd fd(
        ::accept4(listener_.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.is_open()) return;
    const bool is_rank = std::any_of(
        identities_.begin(), identities_.end(),
        [&fd](const ArenaIdentity& identity) { return is_process(fd.get(), identity); });
    if (is_rank) {
      candidates_.push_back(std::move(fd));
    } else {
      base::log(LogLevel::kWarn, rank_, "arena: refused a connection of a process that is no rank");
    }
  }
}

/// True when nothing more is expected of the connection as a candidate.
bool MeshBuilder::advance(base::UniqueFd& candidate) {
  const Result<Received> received = receive_message(candidate.get());
  if (received.ok() && received->state == ReceiveState::kNothing) return false;
  if (!received.ok() || received->state != ReceiveState::kMessage) return true;
  const ArenaMessage& hello = received->message;
  const bool is_right = hello.kind == ArenaMessageKind::kHello && hello.rank > rank_ &&
                        hello.rank < static_cast<int>(identities_.size()) && is_near(hello.rank) &&
                        equal_in_constant_time(hello.token, self().token);
  if (!is_right) return true;
  const ArenaIdentity& identity = identities_[static_cast<std::size_t>(hello.rank)];
  if (!is_process(candidate.get(), identity) || connection(hello.rank).socket.is_open())
    return true;
  connection(hello.rank) = {.socket = std::move(candidate),
                            .process = open_process(identity, self())};
  return true;
}

}  // namespace

Result<ArenaListener> open_arena_listener(int num_ranks) {
  base::UniqueFd fd(::socket(AF_UNIX, kSocketType, 0));
  if (!fd.is_open()) return base::errno_status("arena: socket", errno);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // An address without a name: the kernel picks an unused abstract one.
  if (::bind(fd.get(), generic(address), sizeof(address.sun_family)) != 0 ||
      ::listen(fd.get(), num_ranks + kSpareBacklog) != 0) {
    return base::errno_status("arena: bind and listen", errno);
  }
  socklen_t bytes = sizeof(address);
  auto* const writable = static_cast<sockaddr*>(static_cast<void*>(&address));
  if (::getsockname(fd.get(), writable, &bytes) != 0) {
    return base::errno_status("arena: getsockname", errno);
  }
  const std::size_t name_bytes = bytes - offsetof(sockaddr_un, sun_path);
  EP_CHECK(name_bytes > 1, "the kernel chose no name");
  return ArenaListener{.fd = std::move(fd),
                       .name = std::string(address.sun_path + 1, name_bytes - 1)};
}

Result<std::vector<ArenaConnection>> connect_arenas(const std::vector<ArenaIdentity>& identities,
                                                    int rank,
                                                    const ArenaListener& listener,
                                                    base::Deadline deadline) {
  return MeshBuilder(identities, rank, listener, deadline).build();
}

}  // namespace ep::fabric
