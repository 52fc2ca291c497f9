// SPDX-License-Identifier: Apache-2.0
// Packing, sending and checked receiving of arena messages.
#include "fabric/arena_message.h"

#include "base/byte_io.h"
#include "base/errno_status.h"
#include "fabric/bootstrap/wire.h"

#include <algorithm>
#include <cstring>
#include <errno.h>
#include <poll.h>
#include <span>
#include <string>
#include <sys/socket.h>
#include <utility>
#include <vector>

namespace ep::fabric {
namespace {

constexpr std::uint32_t kArenaMagic = 0x52415045;  // "EPAR"
constexpr std::size_t kMessageBytes = 4 + 1 + 3 * 4 + 8 + sizeof(ArenaToken) + sizeof(FabricHandle);

/// Room for more descriptors than any message has, so that they arrive, are seen and closed.
constexpr std::size_t kMaxDescriptors = 4;
using ControlBuffer = std::array<std::byte, CMSG_SPACE(kMaxDescriptors * sizeof(int))>;

std::vector<std::byte> pack(const ArenaMessage& message) {
  base::ByteWriter writer;
  writer.put(kArenaMagic)
      .put(static_cast<std::uint8_t>(message.kind))
      .put(message.rank)
      .put(message.segment)
      .put(message.error)
      .put(message.bytes)
      .put_bytes(message.token)
      .put_bytes(message.fabric);
  return writer.take();
}

Result<ArenaMessage> unpack(std::span<const std::byte> packet) {
  base::ByteReader reader(packet);
  const auto magic = reader.get<std::uint32_t>();
  const auto kind = reader.get<std::uint8_t>();
  ArenaMessage message;
  message.rank = reader.get<std::int32_t>();
  message.segment = reader.get<std::int32_t>();
  message.error = reader.get<std::int32_t>();
  message.bytes = reader.get<std::int64_t>();
  const std::span<const std::byte> token = reader.get_bytes(message.token.size());
  const std::span<const std::byte> fabric = reader.get_bytes(message.fabric.size());
  const bool is_known = kind >= static_cast<std::uint8_t>(ArenaMessageKind::kHello) &&
                        kind <= static_cast<std::uint8_t>(ArenaMessageKind::kFabricSegment);
  if (!reader.is_complete() || magic != kArenaMagic || !is_known) {
    return Status(Errc::kFabric,
                  "arena: packet of " + std::to_string(packet.size()) + " bytes is no message");
  }
  std::copy(token.begin(), token.end(), message.token.begin());
  std::copy(fabric.begin(), fabric.end(), message.fabric.begin());
  message.kind = static_cast<ArenaMessageKind>(kind);
  return message;
}

std::vector<base::UniqueFd> take_descriptors(msghdr& header) {
  std::vector<base::UniqueFd> fds;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(fd));
      fds.emplace_back(fd);
    }
  }
  return fds;
}

Result<Received> check_packet(std::span<const std::byte> packet,
                              std::vector<base::UniqueFd> fds,
                              int flags) {
  if ((flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    return Status(Errc::kFabric, "arena: packet larger than any message");
  }
  Result<ArenaMessage> message = unpack(packet);
  if (!message.ok()) return message.status();
  const std::size_t num_expected = message->kind == ArenaMessageKind::kSegment ? 1 : 0;
  if (fds.size() != num_expected) {
    return Status(Errc::kFabric, "arena: message with " + std::to_string(fds.size()) +
                                     " descriptors, expected " + std::to_string(num_expected));
  }
  Received received{.state = ReceiveState::kMessage, .message = *message, .fd = {}};
  if (!fds.empty()) received.fd = std::move(fds.front());
  return received;
}

}  // namespace

Result<Received> receive_message(int socket) {
  // One byte more than a message, so that a longer packet shows.
  std::array<std::byte, kMessageBytes + 1> packet{};
  alignas(cmsghdr) ControlBuffer control{};
  iovec part{.iov_base = packet.data(), .iov_len = packet.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t count = ::recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return Received{};
  if (count < 0 && errno != ECONNRESET) return base::errno_status("arena: recvmsg", errno);
  // Empty packets are no messages either: an empty one and the end of the stream read alike, and
  // end it alike.
  if (count <= 0) return Received{.state = ReceiveState::kClosed, .message = {}, .fd = {}};
  std::vector<base::UniqueFd> fds = take_descriptors(header);
  return check_packet(std::span(packet).first(static_cast<std::size_t>(count)), std::move(fds),
                      header.msg_flags);
}

Status send_message(int socket, const ArenaMessage& message, int fd, base::Deadline deadline) {
  std::vector<std::byte> packet = pack(message);
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
  iovec part{.iov_base = packet.data(), .iov_len = packet.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (fd >= 0) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
  }
  while (true) {
    if (::sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return Status();
    if (errno == EPIPE || errno == ECONNRESET) {
      return Status(Errc::kPeerTimeout, "closed the connection", errno);
    }
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
      return base::errno_status("arena: sendmsg", errno);
    }
    if (!wait_for(socket, POLLOUT, deadline)) {
      return Status(Errc::kPeerTimeout, "does not read within the deadline");
    }
  }
}

}  // namespace ep::fabric
