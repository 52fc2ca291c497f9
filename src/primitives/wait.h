// SPDX-License-Identifier: Apache-2.0
// Waits: every one has a deadline, looks at the group's abort word and at the peer's liveness, and
// leaves a fault record.
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
  kAlone,      ///< local, not a wait: another launch of this rank has not ended
};

struct WaitFor {
  WaitSite site;
  int peer;  ///< this rank for local waits
  std::uint64_t expected;
};

/// Polls between two looks at clock and abort word.
inline constexpr int kPollsPerCheck = 64;
/// Of those, looks between two at a peer's liveness: its flag may lie behind a slow bus.
inline constexpr int kChecksPerLivenessCheck = 8;

/// Sets the abort word of every reachable peer and leaves the record there unless an earlier one
/// exists.
template <Executor Exec>
EP_HOST_DEVICE void spread_fault(const OpContext<Exec>& op, const layout::FaultRecord& record) {
  using Memory = typename Exec::Memory;
  for (int hop = 0; hop < op.num_ranks(); ++hop) {
    const int rank =
        (op.rank() + hop) % op.num_ranks();  // own record first: it claims the fault for this rank
    auto* fault = op.template array_of<layout::FaultRecord>(rank, op.control().fault);
    if (Memory::compare_exchange_relaxed_sys(&fault->claimed, 0U, 1U)) {
      const layout::FaultRecord* source = &record;
      fault->op = source->op;
      fault->site = source->site;
      fault->reporter = source->reporter;
      fault->peer = source->peer;
      fault->direct_peer = source->direct_peer;
      fault->peer_is_gone = source->peer_is_gone;
      fault->epoch = source->epoch;
      fault->expected = source->expected;
      fault->got = source->got;
      fault->waited_ns = source->waited_ns;
      // [sync:fault] release: the record. Acquired in core/fault_status.cc.
      Memory::store_release_sys(&fault->claimed, 2U);
    }
    // Relaxed: the record's own word orders its contents; this one only ends waits.
    Memory::store_relaxed_sys(
        &op.template array_of<layout::Counter>(rank, op.control().abort)->value, std::uint64_t{1});
  }
  op.report_failure();
}

/// Whom to blame: a rank that waits for a third one is not the culprit.
template <Executor Exec>
EP_HOST_DEVICE int end_of_chain(const OpContext<Exec>& op, int peer) {
  for (int hop = 0; hop < op.num_ranks(); ++hop) {
    const auto* local = op.template array_of<layout::LocalState>(peer, op.control().local);
    // Relaxed: a hint for the message, it orders nothing.
    const std::uint64_t blocked_on = Exec::Memory::load_relaxed_sys(&local->blocked_on.value);
    if (layout::tag_in(blocked_on) != op.tag() || layout::value_in(blocked_on) == 0) return peer;
    const int next = static_cast<int>(layout::value_in(blocked_on)) - 1;
    if (next == peer || next == op.rank() || next >= op.num_ranks()) return peer;
    peer = next;
  }
  return peer;
}

/// One thread's wait, polled until read() == expected.
template <Executor Exec>
class Poller {
 public:
  EP_HOST_DEVICE Poller(const OpContext<Exec>& op, const WaitFor& wait)
      : op_(&op), wait_(wait), start_ns_(Exec::clock_ns()) {}

  /// One look; `is_check`: also at the abort word and the clock. False if the group gave up.
  template <class Read>
  EP_HOST_DEVICE bool look(Read read, bool is_check) {
    // Liveness is read before the word: what a peer wrote before it left must still be seen.
    const bool is_gone = is_check && is_peer_gone();
    got_ = read();
    if (is_done() || !is_check) return true;
    if (!op_->may_proceed()) return false;
    note_blocked(layout::tagged_word(op_->tag(), static_cast<std::uint32_t>(wait_.peer) + 1));
    const std::uint64_t waited_ns = Exec::clock_ns() - start_ns_;
    if (!is_gone && waited_ns <= limit_ns()) return true;
    spread_fault(*op_, make_fault(waited_ns, is_gone));
    return false;
  }

  EP_HOST_DEVICE bool is_done() const { return got_ == wait_.expected; }
  EP_HOST_DEVICE void finish() {
    if (is_noted_) note_blocked(0);
  }

 private:
  EP_HOST_DEVICE bool is_local() const { return wait_.peer == op_->rank(); }

  EP_HOST_DEVICE bool is_peer_gone() {
    const bool is_turn = num_checks_++ % kChecksPerLivenessCheck == 0;
    return is_turn && !is_local() && Exec::is_gone(op_->params->gone_flags, wait_.peer);
  }

  // A wait for this rank's own lanes ends after theirs for peers, of which there is one per peer at
  // most in a row: the lane that waits for the peer must be the one to report.
  EP_HOST_DEVICE std::uint64_t limit_ns() const {
    const std::uint64_t timeout_ns = op_->params->timeout_ns;
    return is_local() ? timeout_ns * (static_cast<std::uint64_t>(op_->num_ranks()) + 1)
                      : timeout_ns;
  }

  EP_HOST_DEVICE void note_blocked(std::uint64_t word) {
    if (is_local()) return;
    // Relaxed: see end_of_chain.
    Exec::Memory::store_relaxed_sys(&op_->local()->blocked_on.value, word);
    is_noted_ = true;
  }

  EP_HOST_DEVICE layout::FaultRecord make_fault(std::uint64_t waited_ns, bool is_gone) const {
    layout::FaultRecord record;
    record.op = op_->params->announcement[layout::OpField::kKind];
    record.site = static_cast<std::uint32_t>(wait_.site);
    record.reporter = op_->rank();
    record.peer = is_gone ? wait_.peer : end_of_chain(*op_, wait_.peer);
    record.direct_peer = wait_.peer;
    record.peer_is_gone = is_gone ? 1 : 0;
    record.epoch = op_->epoch;
    record.expected = wait_.expected;
    record.got = got_;
    record.waited_ns = waited_ns;
    return record;
  }

  const OpContext<Exec>* op_;
  WaitFor wait_;
  std::uint64_t start_ns_;
  std::uint64_t got_ = 0;
  int num_checks_ = 0;
  bool is_noted_ = false;
};

/// One thread: polls until read() == wait.expected. False if the group gave up.
template <Executor Exec, class Read>
EP_HOST_DEVICE bool poll_until(const OpContext<Exec>& op, const WaitFor& wait, Read read) {
  if (read() == wait.expected) return true;
  Poller<Exec> poller(op, wait);
  for (int polls = 1;; ++polls) {
    Exec::relax(polls);
    if (!poller.look(read, polls % kPollsPerCheck == 0)) return false;
    if (poller.is_done()) break;
  }
  poller.finish();
  return true;
}

/// All threads of the group call; thread 0 polls, its acquire (inside `read`) holds for all. False
/// if the group gave up: the caller returns without another side effect.
template <Executor Exec, Coop G, class Read>
EP_HOST_DEVICE bool wait_until(G group, const OpContext<Exec>& op, const WaitFor& wait, Read read) {
  std::uint64_t is_done = 0;
  if (group.thread_rank() == 0) is_done = poll_until(op, wait, read) ? 1 : 0;
  return group.broadcast(is_done) != 0;
}

/// As wait_until for every rank: thread i polls rank i (and i + size(), ...) until
/// read(rank) == expected.
template <Executor Exec, Coop G, class Read>
EP_HOST_DEVICE bool wait_for_all(
    G group, const OpContext<Exec>& op, WaitSite site, std::uint64_t expected, Read read) {
  bool is_done = true;
  for (int peer = group.thread_rank(); peer < op.num_ranks() && is_done; peer += group.size()) {
    is_done = poll_until(op, {site, peer, expected}, [&] { return read(peer); });
  }
  return group.all(is_done);
}

}  // namespace ep::primitives
