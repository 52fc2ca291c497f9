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
  kCounted,       ///< local: routing of all tokens counted
  kTallied,       ///< local: rows of all experts summed up
  kScanned,       ///< local: prefix sums of all columns done
  kPrepared,      ///< local: side arrays copied into the arena
  kIndexed,       ///< local: pairs of all sources indexed
  kGrouped,       ///< local: tokens grouped by node
  kResolved,      ///< local: every peer's announcement seen
  kAnnounced,     ///< a peer's announcement of the operation
  kCounts,        ///< a peer's counts
  kBlock,         ///< a peer's announcement of its blocks
  kChunk,         ///< a chunk of rows from a peer, to copy on
  kArrived,       ///< all rows and records of a peer
  kRingReady,     ///< a row in the ring, from its owner
  kRingFreed,     ///< a row of the ring, read by the peer
  kPulled,        ///< a peer's reads of this rank's rows
  kReturned,      ///< router gradients of a peer
  kAlone,         ///< local, not a wait: another launch of this rank has not ended
  kNetMessage,    ///< what a rank of another node calls
  kNetBlock,      ///< the announcement of its blocks
  kNetRows,       ///< a chunk of its rows
  kNetSums,       ///< a chunk of sums from another node
  kNetGradients,  ///< router gradients from another node
  kNetFreed,      ///< a slot whose chunk was read on the other node
  kNetRoom,       ///< room in the network for a put
};

struct WaitFor {
  WaitSite site;
  int peer;  ///< this rank for local waits
  std::uint64_t expected;
};

/// Polls between two looks around.
inline constexpr int kPollsPerCheck = 64;
/// Of those, looks between two at a peer's liveness, the first after half as many. The flags of a
/// GPU lie behind a slow bus: hundreds of warps that read there hold up the releases of the others.
inline constexpr int kChecksPerLivenessCheck = 32;

/// The rank for which a rank of this node waits long, -1 if for none.
template <Executor Exec>
EP_HOST_DEVICE int waits_for(const OpContext<Exec>& op, int rank) {
  const auto* local = op.template array_of<layout::LocalState>(rank, op.control().local);
  // Relaxed: a hint for the message, it orders nothing.
  const std::uint64_t blocked_on = Exec::Memory::load_relaxed_sys(&local->blocked_on.value);
  if (layout::tag_in(blocked_on) != op.tag()) return -1;
  const int next = static_cast<int>(layout::value_in(blocked_on)) - 1;
  return next < op.num_ranks() ? next : -1;
}

/// Whom to blame: a rank that waits for a third one is not the culprit. A rank of another node is
/// only if the one that stands in for it here waits for it, too.
template <Executor Exec>
EP_HOST_DEVICE int end_of_chain(const OpContext<Exec>& op, int peer) {
  for (int hop = 0; hop < op.num_ranks(); ++hop) {
    const int host = op.host_of(peer);
    const int next = waits_for(op, host);
    if (next == peer) return peer;
    if (next < 0 || next == host || next == op.rank()) return host;
    peer = next;
  }
  return peer;
}

/// The process behind what `peer` does on this node has ended, or its own has.
template <Executor Exec>
EP_HOST_DEVICE bool is_gone(const OpParams& params, int peer) {
  if (Exec::is_gone(params.gone_flags, peer)) return true;
  return params.host_of != nullptr && Exec::is_gone(params.gone_flags, params.host_of[peer]);
}

/// What a long wait finds when it looks around.
enum class Outlook {
  kGoOn,
  kAborted,  ///< another lane gave up
  kGone,     ///< the peer's connection ended; what it wrote before that still counts
  kLate,     ///< the deadline is over
};

// A wait for this rank's own lanes ends after theirs for peers, of which there is one per peer at
// most in a row: the lane that waits for the peer must be the one to report.
EP_HOST_DEVICE inline std::uint64_t limit_ns(const OpParams& params, int peer) {
  const auto num_ranks = static_cast<std::uint64_t>(params.layout.shape.num_ranks);
  return peer == params.rank ? params.timeout_ns * (num_ranks + 1) : params.timeout_ns;
}

// Out of line: every wait has a copy of what is inlined, and a GPU reads the code of a kernel from
// memory, each time that others used its cache in between.

/// Looks at the abort word, the peer's liveness and the clock; tells those who look for the end of
/// a chain of ranks for whom this one waits.
template <Executor Exec>
EP_COLD EP_HOST_DEVICE Outlook look_around(
    const OpParams* params, std::uint64_t epoch, int peer, std::uint64_t start_ns, int polls) {
  const OpContext<Exec> op(*params, epoch);
  if (!op.may_proceed()) return Outlook::kAborted;
  if (peer != op.rank()) {
    // Relaxed: see end_of_chain.
    Exec::Memory::store_relaxed_sys(
        &op.local()->blocked_on.value,
        layout::tagged_word(op.tag(), static_cast<std::uint32_t>(peer) + 1));
    const bool is_turn =
        polls / kPollsPerCheck % kChecksPerLivenessCheck == kChecksPerLivenessCheck / 2;
    if (is_turn && is_gone<Exec>(*params, peer)) return Outlook::kGone;
  }
  return Exec::clock_ns() - start_ns > limit_ns(*params, peer) ? Outlook::kLate : Outlook::kGoOn;
}

/// Gives up a wait: sets the abort word of every reachable peer, and leaves the record there unless
/// an earlier one exists. Always false.
template <Executor Exec>
EP_COLD EP_HOST_DEVICE bool give_up(const OpParams* params,
                                    std::uint64_t epoch,
                                    WaitFor wait,
                                    std::uint64_t got,
                                    std::uint64_t start_ns,
                                    bool is_gone) {
  using Memory = typename Exec::Memory;
  const OpContext<Exec> op(*params, epoch);
  const std::uint64_t waited_ns = Exec::clock_ns() - start_ns;
  const bool is_culprit = is_gone || wait.site == WaitSite::kAlone;
  const bool is_host_gone = is_gone && !Exec::is_gone(params->gone_flags, wait.peer);
  const int gone = is_host_gone ? op.host_of(wait.peer) : wait.peer;
  const int blamed = is_culprit ? gone : end_of_chain(op, wait.peer);
  for (int hop = 0; hop < op.num_ranks(); ++hop) {
    const int rank =
        (op.rank() + hop) % op.num_ranks();  // own record first: it claims the fault for this rank
    auto* fault = op.template array_of<layout::FaultRecord>(rank, op.control().fault);
    if (Memory::compare_exchange_relaxed_sys(&fault->claimed, 0U, 1U)) {
      fault->op = params->announcement[layout::OpField::kKind];
      fault->site = static_cast<std::uint32_t>(wait.site);
      fault->reporter = op.rank();
      fault->peer = blamed;
      fault->direct_peer = wait.peer;
      fault->peer_is_gone = is_gone ? 1 : 0;
      fault->epoch = epoch;
      fault->expected = wait.expected;
      fault->got = got;
      fault->waited_ns = waited_ns;
      // [sync:fault] release: the record. Acquired in core/fault_status.cc.
      Memory::store_release_sys(&fault->claimed, 2U);
    }
    // Relaxed: the record's own word orders its contents; this one only ends waits.
    Memory::store_relaxed_sys(
        &op.template array_of<layout::Counter>(rank, op.control().abort)->value, std::uint64_t{1});
  }
  op.report_failure();
  return false;
}

/// One thread: polls until read() == wait.expected. False if the group gave up.
template <Executor Exec, class Read>
EP_HOST_DEVICE bool poll_until(const OpContext<Exec>& op, const WaitFor& wait, Read read) {
  if (read() == wait.expected) return true;
  const std::uint64_t start_ns = Exec::clock_ns();
  int polls = 0;
  for (bool is_done = false; !is_done;) {
    Exec::relax(++polls);
    // Liveness is read before the word: what a peer wrote before it left must still be seen.
    const Outlook outlook = polls % kPollsPerCheck == 0
                                ? look_around<Exec>(op.params, op.epoch, wait.peer, start_ns, polls)
                                : Outlook::kGoOn;
    const std::uint64_t got = read();
    is_done = got == wait.expected;
    if (is_done || outlook == Outlook::kGoOn) continue;
    if (outlook == Outlook::kAborted) return false;
    return give_up<Exec>(op.params, op.epoch, wait, got, start_ns, outlook == Outlook::kGone);
  }
  // Relaxed: see end_of_chain.
  if (polls >= kPollsPerCheck && wait.peer != op.rank())
    Exec::Memory::store_relaxed_sys(&op.local()->blocked_on.value, std::uint64_t{0});
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
