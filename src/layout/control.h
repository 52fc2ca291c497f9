// SPDX-License-Identifier: Apache-2.0
// The control region at the start of segment 0: the same offsets on every rank, from the group's
// maxima alone.
#pragma once

#include "layout/announcement.h"
#include "layout/epoch.h"
#include "layout/regions.h"

#include <cstdint>

namespace ep::layout {

/// Tokens that no ticket of a combine goes beyond.
inline constexpr int kChunkTokens = 8;
/// Rows per unit of ControlShape::ring_slots: the rows of a chunk never share one of the ring
/// (intranode/README.md, why tickets never deadlock).
inline constexpr int kRingSlotRows = kChunkTokens;
/// Tokens of a dispatch whose rows announce themselves together (CopyWay::kReceiver). Fewer: their
/// copies begin sooner. More: fewer words and releases.
inline constexpr int kDispatchChunkTokens = 4;
static_assert(kChunkTokens % kDispatchChunkTokens == 0);

/// What the control region is sized by; equal on all ranks.
struct ControlShape {
  int num_ranks = 1;
  std::int64_t max_tokens = 0;
  int max_experts = 0;
  std::int64_t max_row_bytes = 0;
  int ring_slots = 1;

  EP_HOST_DEVICE constexpr int max_columns() const { return num_ranks + max_experts; }
  /// Rows that one rank may have on their way to another.
  EP_HOST_DEVICE constexpr std::int64_t ring_rows() const {
    return std::int64_t{ring_slots} * kRingSlotRows;
  }
  EP_HOST_DEVICE constexpr std::int64_t max_dispatch_chunks() const {
    return div_up(max_tokens, kDispatchChunkTokens);
  }
};

/// Counters that the roles of one rank share. Zero between operations: the last role to leave
/// resets them.
enum class Ticket : int {
  kCount,
  kRoute,
  kSend,
  kRecord,
  kCopy,
  kPad,
  kPrepare,
  kResolve,
  kPush,
  kPull,
  kIndex,
  kGroup,
  kPost,
  kRail,
  kNum
};
enum class Stage : int {
  kCounted,
  kTallied,
  kScanned,
  kPrepared,
  kIndexed,
  kGrouped,
  kResolved,
  kLeft,
  kRailLeft,
  kNum
};

/// A counter on a line of its own.
struct alignas(kLineBytes) Counter {
  std::uint64_t value = 0;
};

/// What a lane adds to LocalState::busy. Lanes of one launch add the same, so that n of them make n
/// units; a sum with lanes of another call is no multiple of either.
/// | 63..32 call | 31..0 one lane |
EP_HOST_DEVICE constexpr std::uint64_t busy_unit(std::uint64_t call) { return (call << 32) | 1U; }

/// Lanes in the word, if all of them are of one call.
EP_HOST_DEVICE constexpr std::uint32_t busy_lanes(std::uint64_t busy) {
  return static_cast<std::uint32_t>(busy);
}

/// Words of one rank that only its own roles write.
struct LocalState {
  Counter epoch;              ///< of the last finished operation
  Counter rejected;           ///< ~position of the lowest invalid topk_idx counted so far, 0 = none
  Counter rejected_position;  ///< `rejected` of the last operation that counted, kept for the host
  Counter verdict;            ///< set by the resolve step: a Verdict
  Counter busy;               ///< lanes that entered the launch at hand, each added busy_unit()
  Counter blocked_on;  ///< tag | peer + 1 while a lane waits long for a peer, else 0; peers read it
                       ///< to find whom to blame
  Counter tickets[static_cast<int>(Ticket::kNum)];
  Counter stages[static_cast<int>(Stage::kNum)];
};

/// First fault of a group, as seen by this rank.
struct alignas(kLineBytes) FaultRecord {
  std::uint32_t claimed = 0;  ///< 0: none, 1: being written, 2: complete
  std::uint32_t op = 0;       ///< OpKind
  std::uint32_t site = 0;     ///< primitives::WaitSite
  std::int32_t reporter = 0;  ///< the rank that gave up
  std::int32_t peer =
      0;  ///< the rank it waited for, at the end of the chain of ranks that wait for each other
  std::int32_t direct_peer = 0;  ///< the beginning of that chain
  std::uint32_t peer_is_gone = 0;
  std::uint64_t epoch = 0;
  std::uint64_t expected = 0;
  std::uint64_t got = 0;
  std::uint64_t waited_ns = 0;
};

/// Offsets in bytes from the start of segment 0. Arrays of peers are indexed by the rank that
/// writes them; a *base* is the value of a counter at the end of the last operation: counters only
/// grow.
struct ControlLayout {
  ControlShape shape;

  // Of this rank: LocalState, FaultRecord, Counter (not 0 ends every wait).
  std::int64_t local = 0;
  std::int64_t fault = 0;
  std::int64_t abort = 0;

  // Announcements: [kNumBanks][num_ranks] of AnnouncedOp, AnnouncedBlock, u64[max_columns]: tag |
  // rows of the column.
  std::int64_t ops = 0;
  std::int64_t blocks = 0;
  std::int64_t counts = 0;
  // int32[max_experts]: this rank's rows per expert while they are summed up, kFlat.
  std::int64_t totals = 0;

  // Counter[num_ranks] and its base, u64[num_ranks]: pairs and records that landed here; chunks of
  // the peer's tokens whose rows here it has read; pairs whose router gradient came back.
  std::int64_t arrived = 0;
  std::int64_t arrived_base = 0;
  std::int64_t pulled = 0;
  std::int64_t pulled_base = 0;
  std::int64_t returned = 0;
  std::int64_t returned_base = 0;

  // u64[num_ranks][max_dispatch_chunks]: tag | chunk_value once the chunk's rows landed here.
  std::int64_t chunk_flags = 0;
  // u64[num_ranks][max_tokens]: the epoch, once the row of the pair is in the ring (at the reader),
  // once it was read (at the writer).
  std::int64_t ring_ready = 0;
  std::int64_t ring_freed = 0;
  // int32[num_ranks][max_tokens]: the pair of a source's token here, among the pairs of that
  // source. Never cleared: a pair is a token's only if its record says so.
  std::int64_t pair_index = 0;
  std::int64_t control_bytes = 0;  // all of the above

  // [num_ranks][ring_rows], at the reader.
  std::int64_t ring_payload = 0;
  std::int64_t ring_bytes = 0;
  std::int64_t total_bytes = 0;

  /// Index of a chunk's word in chunk_flags.
  EP_HOST_DEVICE constexpr std::int64_t chunk_flag_index(int peer, std::int64_t chunk) const {
    return peer * shape.max_dispatch_chunks() + chunk;
  }
  /// Index of a token in pair_index, of a pair in ring_ready and ring_freed: a source has as many
  /// pairs as tokens at most.
  EP_HOST_DEVICE constexpr std::int64_t token_index(int peer, std::int64_t number) const {
    return peer * shape.max_tokens + number;
  }
  /// Offset of the row of the ring in which a pair between this rank and `peer` travels.
  EP_HOST_DEVICE constexpr std::int64_t ring_row(int peer, std::int64_t pair) const {
    const std::int64_t row = peer * shape.ring_rows() + pair % shape.ring_rows();
    return ring_payload + row * shape.max_row_bytes;
  }
};

EP_HOST_DEVICE constexpr ControlLayout make_control_layout(const ControlShape& shape) {
  ControlLayout layout{.shape = shape};
  const std::int64_t num_ranks = shape.num_ranks;
  Regions regions;
  layout.local = regions.add<LocalState>(1);
  layout.fault = regions.add<FaultRecord>(1);
  layout.abort = regions.add<Counter>(1);
  layout.ops = regions.add<AnnouncedOp>(kNumBanks * num_ranks);
  layout.blocks = regions.add<AnnouncedBlock>(kNumBanks * num_ranks);
  layout.counts = regions.add<std::uint64_t>(kNumBanks * num_ranks * shape.max_columns());
  layout.totals = regions.add<std::int32_t>(shape.max_experts);
  layout.arrived = regions.add<Counter>(num_ranks);
  layout.arrived_base = regions.add<std::uint64_t>(num_ranks);
  layout.pulled = regions.add<Counter>(num_ranks);
  layout.pulled_base = regions.add<std::uint64_t>(num_ranks);
  layout.returned = regions.add<Counter>(num_ranks);
  layout.returned_base = regions.add<std::uint64_t>(num_ranks);
  layout.chunk_flags = regions.add<std::uint64_t>(num_ranks * shape.max_dispatch_chunks());
  layout.ring_ready = regions.add<std::uint64_t>(num_ranks * shape.max_tokens);
  layout.ring_freed = regions.add<std::uint64_t>(num_ranks * shape.max_tokens);
  layout.pair_index = regions.add<std::int32_t>(num_ranks * shape.max_tokens);
  layout.control_bytes = regions.total_bytes();
  layout.ring_payload = regions.add_bytes(num_ranks * shape.ring_rows() * shape.max_row_bytes);
  layout.ring_bytes = regions.total_bytes() - layout.control_bytes;
  layout.total_bytes = regions.total_bytes();
  return layout;
}

}  // namespace ep::layout
