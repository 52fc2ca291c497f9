// SPDX-License-Identifier: Apache-2.0
// Waits: every one has a deadline, looks at the group's abort word and at the peer's liveness, and leaves a fault record.
#pragma once

#include "layout/control.h"
#include "primitives/op_context.h"

#include <cstdint>

namespace ep::primitives {

/// Where a role waits; part of the fault record.
enum class WaitSite : std::uint32_t {
  kCounted,    ///< local: routing of all tokens counted
  kScanned,    ///< local: prefix sums of all columns done
  kPrepared,   ///< local: side arrays copied into the arena
  kResolved,   ///< local: every peer's announcement seen
  kAnnounced,  ///< a peer's announcement of the operation
  kBlock,      ///< a peer's announcement of its blocks
  kChunk,      ///< a chunk of rows from a peer, to copy on
  kArrived,    ///< all rows and records of a peer
  kRingReady,  ///< a chunk in the ring, from its owner
  kRingFreed,  ///< a slot of the ring, read by the peer
  kPulled,     ///< a peer's reads of this rank's rows
  kReturned,   ///< router gradients of a peer
};

struct WaitFor {
  WaitSite site;
  int peer;  ///< this rank for local waits
  std::uint64_t expected;
};

/// Polls between two looks at clock, abort word and liveness.
inline constexpr int kPollsPerCheck = 64;

/// Sets the abort word of every reachable peer and leaves the record there unless an earlier one exists.
template <Executor Exec>
EP_HOST_DEVICE void spread_fault(const OpContext<Exec>& op, const layout::FaultRecord& record) {
  using Memory = typename Exec::Memory;
  for (int hop = 0; hop < op.num_ranks(); ++hop) {
    const int rank = (op.rank() + hop) % op.num_ranks();  // own record first: it claims the fault for this rank
    auto* fault = op.template array_of<layout::FaultRecord>(rank, op.control().fault);
    if (Memory::compare_exchange_relaxed_sys(&fault->claimed, 0U, 1U)) {
      const layout::FaultRecord* source = &record;
      fault->op = source->op;
      fault->site = source->site;
      fault->reporter = source->reporter;
      fault->peer = source->peer;
      fault->peer_is_gone = source->peer_is_gone;
      fault->epoch = source->epoch;
      fault->expected = source->expected;
      fault->got = source->got;
      fault->waited_ns = source->waited_ns;
      // [sync:fault] release: the record. Acquired in core/fault_status.cc.
      Memory::store_release_sys(&fault->claimed, 2U);
    }
    // Relaxed: the record's own word orders its contents; this one only ends waits.
    Memory::store_relaxed_sys(&op.template array_of<layout::Counter>(rank, op.control().abort)->value,
                              std::uint64_t{1});
  }
}

template <Executor Exec>
EP_HOST_DEVICE layout::FaultRecord make_fault(const OpContext<Exec>& op,
                                              const WaitFor& wait,
                                              std::uint64_t got,
                                              std::uint64_t waited_ns) {
  layout::FaultRecord record;
  record.op = op.params->announcement[layout::OpField::kKind];
  record.site = static_cast<std::uint32_t>(wait.site);
  record.reporter = op.rank();
  record.peer = wait.peer;
  record.peer_is_gone = Exec::is_gone(op.params->gone_flags, wait.peer) ? 1 : 0;
  record.epoch = op.epoch;
  record.expected = wait.expected;
  record.got = got;
  record.waited_ns = waited_ns;
  return record;
}

/// One thread: polls until read() == wait.expected. False if the group gave up.
template <Executor Exec, class Read>
EP_HOST_DEVICE bool poll_until(const OpContext<Exec>& op, const WaitFor& wait, Read read) {
  if (read() == wait.expected) return true;
  const std::uint64_t start = Exec::clock_ns();
  for (int polls = 1;; ++polls) {
    Exec::relax(polls);
    // Liveness is read before the word: what a peer wrote before it left must still be seen.
    const bool is_check = polls % kPollsPerCheck == 0;
    const bool is_gone = is_check && Exec::is_gone(op.params->gone_flags, wait.peer);
    const std::uint64_t got = read();
    if (got == wait.expected) return true;
    if (!is_check) continue;
    if (!op.may_proceed()) return false;
    const std::uint64_t waited_ns = Exec::clock_ns() - start;
    if (is_gone || waited_ns > op.params->timeout_ns) {
      spread_fault(op, make_fault(op, wait, got, waited_ns));
      return false;
    }
  }
}

/// All threads of the group call; thread 0 polls, its acquire (inside `read`) holds for all. False if the group gave
/// up: the caller returns without another side effect.
template <Executor Exec, Coop G, class Read>
EP_HOST_DEVICE bool wait_until(G group, const OpContext<Exec>& op, const WaitFor& wait, Read read) {
  std::uint64_t is_done = 0;
  if (group.thread_rank() == 0) is_done = poll_until(op, wait, read) ? 1 : 0;
  return group.broadcast(is_done) != 0;
}

}  // namespace ep::primitives
