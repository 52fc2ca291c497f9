// SPDX-License-Identifier: Apache-2.0
// Frames: how bootstrap messages are cut out of a byte stream.
#pragma once

#include "base/deadline.h"

#include <ep/bootstrap.h>
#include <ep/status.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ep::fabric {

/// Header of a frame, little-endian:
///
/// | bytes | field |
/// |---|---|
/// | 4 | kMagic |
/// | 2 | kWireVersion |
/// | 2 | FrameKind |
/// | 8 | sequence: number of the collective, 0 during the rendezvous |
/// | 8 | bytes of the payload that follows |
inline constexpr std::uint32_t kMagic = 0x53425045;  // "EPBS"
inline constexpr std::uint16_t kWireVersion = 1;
inline constexpr std::size_t kHeaderBytes = 24;

enum class FrameKind : std::uint16_t {
  kChallenge = 1,  ///< rank 0, first: a nonce
  kHello = 2,      ///< a rank: who it is, with a proof
  kWelcome = 3,    ///< rank 0: hello accepted, with a proof of its own
  kReady = 4,      ///< rank 0: all ranks have come
  kGather = 5,     ///< a rank: its contribution
  kResult = 6,     ///< rank 0: all contributions
  kError = 7,      ///< either way: a Status that ends the bootstrap
};

/// Of one rank's contribution to all_gather, and of all of them together.
inline constexpr std::size_t kMaxContributionBytes = std::size_t{64} << 20;
inline constexpr std::size_t kMaxResultBytes = std::size_t{1} << 30;
/// Of the payload of every other frame.
inline constexpr std::size_t kMaxControlBytes = 8192;

struct Frame {
  FrameKind kind = FrameKind::kError;
  std::uint64_t sequence = 0;
  Bootstrap::Bytes payload;
};

/// Header and payload, ready to send.
Bootstrap::Bytes encode(const Frame& frame);

/// Takes exactly one frame out of a non-blocking socket, over any number of calls.
class FrameReader {
 public:
  /// A frame that announces more is refused before anything of it is allocated.
  explicit FrameReader(std::size_t max_payload_bytes) : max_payload_bytes_(max_payload_bytes) {}

  enum class Progress : std::uint8_t { kIncomplete, kComplete, kClosed };

  /// Reads what is there. Errors: kFabric for a failed socket or bytes that are no frame,
  /// kUnsupported for another wire version.
  Result<Progress> read_from(int fd);

  /// Precondition: kComplete. The reader is then ready for the next frame.
  Frame take();

 private:
  Result<Progress> receive(int fd, std::span<std::byte> into, std::size_t& num_received);
  Result<Progress> read_payload(int fd);
  Status parse_header();

  const std::size_t max_payload_bytes_;
  std::array<std::byte, kHeaderBytes> header_{};
  std::size_t header_received_ = 0;
  std::size_t payload_received_ = 0;
  std::uint64_t payload_bytes_ = 0;
  Frame frame_;
};

/// Waits for a whole frame. Errors: those of FrameReader; kPeerTimeout, "closed the connection" or
/// "no answer".
Result<Frame> receive_frame(int fd, std::size_t max_payload_bytes, base::Deadline deadline);

/// Sends what the socket takes now; the number of bytes. Errors: kFabric; kPeerTimeout, "closed the
/// connection".
Result<std::size_t> send_some(int fd, std::span<const std::byte> bytes);

/// Errors: kFabric; kPeerTimeout, "closed the connection" or "does not read".
Status send_all(int fd, std::span<const std::byte> bytes, base::Deadline deadline);

/// The same bytes to several sockets at once, so that one that does not read delays no other.
/// Statuses in the order of `fds`; a closed one (-1) is skipped.
std::vector<Status> send_to_each(std::span<const int> fds,
                                 std::span<const std::byte> bytes,
                                 base::Deadline deadline);

/// True once `events` (POLLIN, POLLOUT), an error or a hang-up are there, false at the deadline.
bool wait_for(int fd, short events, base::Deadline deadline);

/// A Status as the payload of kError, and back. A malformed payload reads as kFabric.
Bootstrap::Bytes encode_status(const Status& status);
Status decode_status(std::span<const std::byte> payload);

}  // namespace ep::fabric
