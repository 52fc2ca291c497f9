// SPDX-License-Identifier: Apache-2.0
// Messages between the arenas of one host: fixed size, one per packet, a descriptor with some.
#pragma once

#include "base/deadline.h"
#include "fabric/segment_handle.h"
#include "fabric/segment_registry.h"

#include <ep/status.h>

#include <cstdint>

namespace ep::fabric {

enum class ArenaMessageKind : std::uint8_t {
  kHello = 1,          ///< connector, first: its rank, the token of the arena that it means
  kSegment = 2,        ///< a new segment; its descriptor comes along
  kSharedSegment = 3,  ///< a new segment of a rank of the receiver's process: in its registry
  kMapped = 4,         ///< answer: mapped
  kNotMapped = 5,      ///< answer: could not; errno
  kGoodbye = 6,        ///< last: this arena is destroyed, its process may live on
  kFabricSegment = 7,  ///< a new segment, by its FABRIC handle
};

struct ArenaMessage {
  ArenaMessageKind kind = ArenaMessageKind::kHello;
  std::int32_t rank = 0;
  std::int32_t segment = 0;
  std::int32_t error = 0;
  std::int64_t bytes = 0;
  ArenaToken token{};
  /// Of kFabricSegment, else zeros.
  FabricHandle fabric{};
};

enum class ReceiveState : std::uint8_t { kMessage, kNothing, kClosed };

struct Received {
  ReceiveState state = ReceiveState::kNothing;
  ArenaMessage message;
  base::UniqueFd fd;
};

/// Takes one packet if there is one. Errors: kFabric for a packet that is no message; descriptors
/// in it are closed.
Result<Received> receive_message(int socket);

/// Sends, with a descriptor unless it is -1; waits while the receiver's queue is full.
/// Errors: kPeerTimeout, "closed the connection" or "does not read"; kFabric.
Status send_message(int socket, const ArenaMessage& message, int fd, base::Deadline deadline);

}  // namespace ep::fabric
