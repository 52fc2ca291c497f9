// SPDX-License-Identifier: Apache-2.0
// What the engine of one rank writes into the scratch window of another. Native byte order: ranks
// with another one are refused when they meet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace ep::fabric {

/// A strong signal, or a weak one that does not fit an immediate.
struct SignalRecord {
  std::uint64_t incarnation = 0;  ///< of the sender
  std::uint64_t number = 0;       ///< strong: the epoch that it closes; weak: of the weak records
  std::uint64_t add = 0;
  /// Strong: writes of the epoch on an unordered network; weak: writes of its put.
  std::uint64_t num_writes = 0;
  std::uint32_t slot = 0;
  std::uint32_t wants_ack = 0;  ///< 1: answer with an acknowledgement at once
};

/// For a record that adds to nothing: a remote flush.
inline constexpr std::uint32_t kNoSlot = 0xffffffffU;

/// Cumulative: says how far the receiver has come. One that is late says nothing new.
struct AckCell {
  std::uint64_t incarnation = 0;  ///< of the receiver
  std::uint64_t arrivals = 0;     ///< immediates with a credit that have arrived
  std::uint64_t epoch = 0;        ///< strong signals below have been applied
  std::uint64_t part = 0;         ///< weak records below have been applied
};

inline constexpr std::size_t kMaxMessageBytes = 256;

/// A message to all peers.
struct MessageCell {
  std::uint64_t incarnation = 0;  ///< of the sender
  std::uint64_t num_bytes = 0;
  std::byte bytes[kMaxMessageBytes] = {};
};

/// Cells of a kind lie this far apart: no two of them share a cache line.
inline constexpr std::int64_t kCellBytes = 64;
inline constexpr std::int64_t kMessageCellBytes = 320;
/// Acknowledgements, and messages, that may be under way to one peer.
inline constexpr std::uint32_t kNumAckCells = 2;
inline constexpr std::uint32_t kNumMessageCells = 4;

static_assert(sizeof(SignalRecord) <= kCellBytes && sizeof(AckCell) <= kCellBytes);
static_assert(sizeof(MessageCell) <= kMessageCellBytes && kMessageCellBytes % kCellBytes == 0);
static_assert(std::is_trivially_copyable_v<SignalRecord> &&
              std::is_trivially_copyable_v<MessageCell>);

}  // namespace ep::fabric
