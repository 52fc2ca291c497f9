// SPDX-License-Identifier: Apache-2.0
// The baseline: one TCP socket, as its bytes come.
#include "base/check.h"
#include "base/errno_status.h"
#include "base/unique_fd.h"
#include "bench/wire.h"

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <vector>

namespace ep::bench {
namespace {

using base::errno_status;
using base::UniqueFd;

Result<UniqueFd> open_socket() {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.is_open()) return errno_status("net: socket", errno);
  return fd;
}

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

Result<UniqueFd> listen_on_any_port(std::uint16_t& port) {
  EP_TRY_ASSIGN(UniqueFd fd, open_socket());
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(fd.get(), generic, size) != 0 || ::listen(fd.get(), 1) != 0 ||
      ::getsockname(fd.get(), generic, &size) != 0) {
    return errno_status("net: listen on loopback", errno);
  }
  port = ntohs(address.sin_port);
  return fd;
}

Result<UniqueFd> accept_one(int listener, std::chrono::milliseconds timeout) {
  pollfd polled = {.fd = listener, .events = POLLIN, .revents = 0};
  if (::poll(&polled, 1, static_cast<int>(timeout.count())) != 1) {
    return Status(Errc::kPeerTimeout, "net: nobody connects to the raw socket").set_peer(1);
  }
  UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  if (!fd.is_open()) return errno_status("net: accept", errno);
  return fd;
}

Result<UniqueFd> connect_to_port(std::uint16_t port) {
  EP_TRY_ASSIGN(UniqueFd fd, open_socket());
  const sockaddr_in address = loopback(port);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return errno_status("net: connect", errno);
  }
  return fd;
}

Status make_fast(int fd) {
  const int is_on = 1;
  const int flags = ::fcntl(fd, F_GETFL);
  if (::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &is_on, sizeof(is_on)) != 0 || flags < 0 ||
      ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return errno_status("net: TCP_NODELAY, O_NONBLOCK", errno);
  }
  return Status();
}

class TcpWire final : public Wire {
 public:
  TcpWire(UniqueFd fd, const WireOptions& options)
      : fd_(std::move(fd)),
        timeout_(options.timeout),
        source_(static_cast<std::size_t>(options.bytes)),
        target_(static_cast<std::size_t>(options.bytes)) {}

  std::string name() const override { return "raw_tcp"; }
  std::span<std::byte> source() override { return source_; }
  std::span<std::byte> target() override { return target_; }

  Status send(const Message& message) override {
    std::span<const std::byte> left = std::span(source_).subspan(
        static_cast<std::size_t>(message.offset), static_cast<std::size_t>(message.bytes));
    Idler idler(base::Deadline::after(timeout_));
    while (!left.empty()) {
      const ssize_t sent = ::send(fd_.get(), left.data(), left.size(), MSG_NOSIGNAL);
      EP_TRY(check(sent, "net: send", idler));
      if (sent > 0) left = left.subspan(static_cast<std::size_t>(sent));
    }
    return Status();
  }

  Status receive(const Stream& stream) override {
    Idler idler(base::Deadline::after(timeout_));
    for (int i = 0; i < stream.num; ++i) EP_TRY(receive_one(stream.message(i), idler));
    return Status();
  }

  /// The kernel has copied what it took.
  Status flush() override { return Status(); }

 private:
  Status receive_one(const Message& message, Idler& idler) {
    std::span<std::byte> left = std::span(target_).subspan(static_cast<std::size_t>(message.offset),
                                                           static_cast<std::size_t>(message.bytes));
    while (!left.empty()) {
      const ssize_t got = ::recv(fd_.get(), left.data(), left.size(), 0);
      if (got == 0) return Status(Errc::kPeerTimeout, "net: the other rank hung up");
      EP_TRY(check(got, "net: recv", idler));
      if (got > 0) left = left.subspan(static_cast<std::size_t>(got));
    }
    return Status();
  }

  static Status check(ssize_t result, const char* what, Idler& idler) {
    if (result >= 0) idler.reset();
    if (result >= 0 || errno == EINTR) return Status();
    if (errno == EAGAIN) return idler.idle();
    return errno_status(what, errno);
  }

  const UniqueFd fd_;
  const std::chrono::milliseconds timeout_;
  std::vector<std::byte> source_;
  std::vector<std::byte> target_;
};

}  // namespace

Result<std::unique_ptr<Wire>> make_tcp_wire(Bootstrap& bootstrap, const WireOptions& options) {
  std::uint16_t port = 0;
  UniqueFd listener;
  if (bootstrap.rank() == 0) {
    EP_TRY_ASSIGN(listener, listen_on_any_port(port));
  }
  EP_TRY_ASSIGN(const auto ports,
                bootstrap.all_gather(std::as_bytes(std::span(&port, 1)), options.timeout));
  UniqueFd fd;
  if (bootstrap.rank() == 0) {
    EP_TRY_ASSIGN(fd, accept_one(listener.get(), options.timeout));
  } else {
    EP_CHECK(ports.front().size() == sizeof(port));
    std::memcpy(&port, ports.front().data(), sizeof(port));
    EP_TRY_ASSIGN(fd, connect_to_port(port));
  }
  EP_TRY(make_fast(fd.get()));
  return std::unique_ptr<Wire>(std::make_unique<TcpWire>(std::move(fd), options));
}

}  // namespace ep::bench
