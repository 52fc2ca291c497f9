// SPDX-License-Identifier: Apache-2.0
// Reading and writing of frames.
#include "fabric/bootstrap/wire.h"

#include "base/byte_io.h"
#include "base/check.h"
#include "base/errno_status.h"

#include <algorithm>
#include <errno.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <utility>

namespace ep::fabric {
namespace {

/// A payload grows by at most this per read, so that memory follows what has arrived, not what was
/// announced.
constexpr std::size_t kReadStepBytes = 256 << 10;
constexpr std::size_t kMaxMessageBytes = 4096;

bool is_known(std::uint16_t kind) {
  return kind >= static_cast<std::uint16_t>(FrameKind::kChallenge) &&
         kind <= static_cast<std::uint16_t>(FrameKind::kError);
}

Status closed_connection() { return Status(Errc::kPeerTimeout, "closed the connection"); }

Status unread() { return Status(Errc::kPeerTimeout, "does not read within the deadline"); }

}  // namespace

Bootstrap::Bytes encode(const Frame& frame) {
  base::ByteWriter writer;
  writer.put(kMagic)
      .put(kWireVersion)
      .put(static_cast<std::uint16_t>(frame.kind))
      .put(frame.sequence)
      .put(std::uint64_t{frame.payload.size()})
      .put_bytes(frame.payload);
  return writer.take();
}

Status FrameReader::parse_header() {
  base::ByteReader reader(header_);
  const auto magic = reader.get<std::uint32_t>();
  const auto version = reader.get<std::uint16_t>();
  const auto kind = reader.get<std::uint16_t>();
  frame_.sequence = reader.get<std::uint64_t>();
  payload_bytes_ = reader.get<std::uint64_t>();
  if (magic != kMagic) return Status(Errc::kFabric, "bootstrap: not an ep peer (wrong magic)");
  if (version != kWireVersion) {
    return Status(Errc::kUnsupported, "bootstrap: wire version " + std::to_string(version) +
                                          ", this build has " + std::to_string(kWireVersion));
  }
  if (!is_known(kind) || payload_bytes_ > max_payload_bytes_) {
    return Status(Errc::kFabric, "bootstrap: frame of kind " + std::to_string(kind) + " with " +
                                     std::to_string(payload_bytes_) + " bytes, at most " +
                                     std::to_string(max_payload_bytes_) + " expected");
  }
  frame_.kind = static_cast<FrameKind>(kind);
  return Status();
}

Result<FrameReader::Progress> FrameReader::receive(int fd,
                                                   std::span<std::byte> into,
                                                   std::size_t& num_received) {
  while (num_received < into.size()) {
    const std::span<std::byte> rest = into.subspan(num_received);
    const ssize_t count = ::recv(fd, rest.data(), rest.size(), MSG_DONTWAIT);
    if (count == 0 || (count < 0 && errno == ECONNRESET)) return Progress::kClosed;
    if (count > 0) {
      num_received += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return Progress::kIncomplete;
    } else if (errno != EINTR) {
      return base::errno_status("bootstrap: recv", errno);
    }
  }
  return Progress::kComplete;
}

Result<FrameReader::Progress> FrameReader::read_payload(int fd) {
  while (payload_received_ < payload_bytes_) {
    const std::size_t left = static_cast<std::size_t>(payload_bytes_) - payload_received_;
    frame_.payload.resize(payload_received_ + std::min(left, kReadStepBytes));
    EP_TRY_ASSIGN(const Progress progress, receive(fd, frame_.payload, payload_received_));
    if (progress != Progress::kComplete) return progress;
  }
  return Progress::kComplete;
}

Result<FrameReader::Progress> FrameReader::read_from(int fd) {
  if (header_received_ < kHeaderBytes) {
    EP_TRY_ASSIGN(const Progress progress, receive(fd, header_, header_received_));
    if (progress != Progress::kComplete) return progress;
    EP_TRY(parse_header());
  }
  return read_payload(fd);
}

Frame FrameReader::take() {
  EP_CHECK(header_received_ == kHeaderBytes && payload_received_ == payload_bytes_);
  header_received_ = 0;
  payload_received_ = 0;
  payload_bytes_ = 0;
  return std::exchange(frame_, Frame());
}

bool wait_for(int fd, short events, base::Deadline deadline) {
  while (true) {
    pollfd entry{.fd = fd, .events = events, .revents = 0};
    const int count = ::poll(&entry, 1, deadline.remaining_ms());
    if (count > 0) return true;
    if (count == 0 && deadline.expired()) return false;
    EP_CHECK(count == 0 || errno == EINTR, "poll");
  }
}

Result<Frame> receive_frame(int fd, std::size_t max_payload_bytes, base::Deadline deadline) {
  FrameReader reader(max_payload_bytes);
  while (wait_for(fd, POLLIN, deadline)) {
    EP_TRY_ASSIGN(const FrameReader::Progress progress, reader.read_from(fd));
    if (progress == FrameReader::Progress::kComplete) return reader.take();
    if (progress == FrameReader::Progress::kClosed) {
      return closed_connection();
    }
  }
  return Status(Errc::kPeerTimeout, "no answer within the deadline");
}

Result<std::size_t> send_some(int fd, std::span<const std::byte> bytes) {
  const ssize_t count = ::send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (count >= 0) return static_cast<std::size_t>(count);
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return std::size_t{0};
  if (errno == EPIPE || errno == ECONNRESET) return closed_connection();
  return base::errno_status("bootstrap: send", errno);
}

Status send_all(int fd, std::span<const std::byte> bytes, base::Deadline deadline) {
  while (!bytes.empty()) {
    EP_TRY_ASSIGN(const std::size_t sent, send_some(fd, bytes));
    bytes = bytes.subspan(sent);
    if (!bytes.empty() && !wait_for(fd, POLLOUT, deadline)) {
      return unread();
    }
  }
  return Status();
}

std::vector<Status> send_to_each(std::span<const int> fds,
                                 std::span<const std::byte> bytes,
                                 base::Deadline deadline) {
  std::vector<Status> statuses(fds.size());
  std::vector<std::size_t> num_sent(fds.size(), 0);
  // poll() skips entries whose descriptor is negative.
  std::vector<pollfd> entries;
  for (int fd : fds) entries.push_back({.fd = fd, .events = POLLOUT, .revents = POLLOUT});
  while (true) {
    bool is_done = true;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].fd < 0) continue;
      if (entries[i].revents != 0) {
        const Result<std::size_t> sent = send_some(entries[i].fd, bytes.subspan(num_sent[i]));
        statuses[i] = sent.status();
        num_sent[i] += sent.ok() ? *sent : 0;
      }
      if (!statuses[i].ok() || num_sent[i] == bytes.size()) entries[i].fd = -1;
      is_done = is_done && entries[i].fd < 0;
    }
    if (is_done || deadline.expired()) break;
    static_cast<void>(::poll(entries.data(), entries.size(), deadline.remaining_ms()));
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].fd >= 0) statuses[i] = unread();
  }
  return statuses;
}

Bootstrap::Bytes encode_status(const Status& status) {
  base::ByteWriter writer;
  writer.put(static_cast<std::uint8_t>(status.code()))
      .put(std::int32_t{status.peer()})
      .put(status.native_code())
      .put_text(std::string_view(status.message()).substr(0, kMaxMessageBytes));
  return writer.take();
}

Status decode_status(std::span<const std::byte> payload) {
  base::ByteReader reader(payload);
  const auto code = reader.get<std::uint8_t>();
  const auto peer = reader.get<std::int32_t>();
  const auto native_code = reader.get<std::int64_t>();
  std::string message = reader.get_text(kMaxMessageBytes);
  const bool is_error_code = code != 0 && code <= static_cast<std::uint8_t>(Errc::kInternal);
  if (!reader.is_complete() || !is_error_code || peer < Status::kNoPeer) {
    return Status(Errc::kFabric, "bootstrap: malformed error frame");
  }
  Status status(static_cast<Errc>(code), std::move(message), native_code);
  status.set_peer(peer);
  return status;
}

}  // namespace ep::fabric
