// SPDX-License-Identifier: Apache-2.0
// Steps that every intranode operation shares: announcements (announce_steps.h), verdict, leaving.
#pragma once

#include "intranode/announce_steps.h"
#include "intranode/dispatch_params.h"
#include "intranode/routing_view.h"
#include "primitives/coop.h"
#include "primitives/stage.h"
#include "primitives/wait.h"

#include <cstdint>

namespace ep::intranode {

/// Reasons of refusals that roles find; further ones are the host's (core/rejection.h). A rank's
/// topk_idx held an invalid expert; the dispatch of a handle was refused.
inline constexpr std::uint32_t kRejectedTopkIdx = 1;
inline constexpr std::uint32_t kRejectedHandle = 2;

/// The host's reason, or that of a handle: all ranks refuse what follows a refused dispatch.
template <primitives::Executor Exec>
EP_HOST_DEVICE std::uint32_t handle_rejection(const primitives::OpContext<Exec>& op,
                                              const RoutingParams& routing) {
  if (op.params->rejection != layout::kAccepted || routing.block == nullptr)
    return op.params->rejection;
  return RoutingView<Exec>(routing).is_refused() ? kRejectedHandle : layout::kAccepted;
}

/// Ends the resolve stage: all roles of this rank learn the verdict.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void publish_verdict(G group,
                                    const primitives::OpContext<Exec>& op,
                                    Verdict verdict) {
  group.sync();
  if (group.thread_rank() != 0) return;
  const auto value = static_cast<std::uint64_t>(verdict);
  Exec::Memory::store(&op.local()->verdict.value, value);
  // [sync:stage] release: the tables, and what the peers announced. Acquired in await_verdict.
  Exec::Memory::store_release_gpu(op.stage(layout::Stage::kResolved), value);
}

/// The verdict of this launch or, before there is one, of an earlier one.
template <primitives::Executor Exec>
EP_HOST_DEVICE Verdict verdict_of(const primitives::OpContext<Exec>& op) {
  return static_cast<Verdict>(Exec::Memory::load(&op.local()->verdict.value));
}

/// What a role learns when it waits for the resolve stage.
enum class Outcome { kMove, kNothingToMove, kGaveUp };

template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE Outcome await_verdict(G group, const primitives::OpContext<Exec>& op) {
  // A launch that was queued behind a failed one finds that one's stages, which nobody reset.
  if (!op.may_proceed()) return Outcome::kGaveUp;
  std::uint64_t verdict = 0;
  const primitives::WaitFor wait{primitives::WaitSite::kResolved, op.rank(), 1};
  const bool is_here = wait_until(group, op, wait, [&] {
    verdict =
        Exec::Memory::load_acquire_gpu(op.stage(layout::Stage::kResolved));  // [sync:stage] acquire
    return std::uint64_t{verdict != 0 ? 1U : 0U};
  });
  if (!is_here) return Outcome::kGaveUp;
  return group.broadcast(verdict) == static_cast<std::uint64_t>(Verdict::kAccepted)
             ? Outcome::kMove
             : Outcome::kNothingToMove;
}

/// A counter per source that only grows: waits until it grew by `expected` since the last
/// operation, and remembers.
struct GrowingCounter {
  primitives::WaitSite site;
  std::int64_t counters;  ///< offset of Counter[num_ranks] in the control region
  std::int64_t bases;     ///< offset of u64[num_ranks]
};

/// For every source: thread i waits for source i (and i + size(), ...) to have added expected(i).
template <primitives::Executor Exec, primitives::Coop G, class Expected>
EP_HOST_DEVICE bool await_growth(G group,
                                 const primitives::OpContext<Exec>& op,
                                 const GrowingCounter& counter,
                                 Expected expected) {
  bool is_done = true;
  for (int src = group.thread_rank(); src < op.num_ranks() && is_done; src += group.size()) {
    auto* base = op.template array<std::uint64_t>(counter.bases) + src;
    const auto* word = op.template array<layout::Counter>(counter.counters) + src;
    const std::uint64_t target =
        Exec::Memory::load(base) + static_cast<std::uint64_t>(expected(src));
    is_done = poll_until(op, {counter.site, src, target}, [&] {
      // [sync:arrive] [sync:pulled] [sync:returned] acquire
      return Exec::Memory::load_acquire_sys(&word->value);
    });
    if (is_done) Exec::Memory::store(base, target);
  }
  return group.all(is_done);
}

/// Why the ranks refused the operation: the first rank that refused its call, else the first field
/// in which their calls differ.
template <primitives::Executor Exec>
EP_HOST_DEVICE void report_reason(const primitives::OpContext<Exec>& op, layout::OpReport* report) {
  using Memory = typename Exec::Memory;
  // Only words that the verdict waited for: where a call was refused, blocks may still arrive.
  const bool is_of_block = verdict_of(op) == Verdict::kBlockRejected;
  for (int src = 0; src < op.num_ranks(); ++src) {
    const std::uint32_t reason = layout::value_in(
        Memory::load_relaxed_sys(is_of_block ? &op.block_from(src)->head : &op.op_from(src)->head));
    if (reason == layout::kAccepted) continue;
    Memory::store(&report->refuser, std::int32_t{src});
    Memory::store(&report->reason, reason);
    return;
  }
  Memory::store(&report->refuser, std::int32_t{-1});
  for (int at = 0; at < layout::kNumAgreedFields * op.num_ranks(); ++at) {
    const auto field = static_cast<layout::OpField>(at / op.num_ranks());
    const int src = at % op.num_ranks();
    const std::uint32_t expected = op.value_from(0, field);
    const std::uint32_t got = op.value_from(src, field);
    if (got == expected) continue;
    Memory::store(&report->field, static_cast<std::int32_t>(field));
    Memory::store(&report->differing_rank, std::int32_t{src});
    Memory::store(&report->value_of_first, expected);
    Memory::store(&report->value_of_differing, got);
    return;
  }
}

/// One thread of the last lane: tells the host of an operation that the ranks refused.
template <primitives::Executor Exec>
EP_COLD EP_HOST_DEVICE void report_refusal(const primitives::OpParams* params,
                                           std::uint64_t epoch) {
  using Memory = typename Exec::Memory;
  const primitives::OpContext<Exec> op(*params, epoch);
  layout::OpReport* report = op.params->report;
  if (report == nullptr) return;
  Memory::store(&report->call, op.params->call);
  Memory::store(&report->rejected, Memory::load_relaxed_gpu(&op.local()->rejected.value));
  Memory::store(&report->kind, op.params->announcement[layout::OpField::kKind]);
  Memory::store(&report->topk, op.params->announcement[layout::OpField::kTopk]);
  Memory::store(&report->num_experts, op.params->announcement[layout::OpField::kNumExperts]);
  report_reason(op, report);
  // [sync:report] release: the reason. Acquired in core/group_state.cc.
  Memory::store_release_sys(&report->refused_epoch, op.epoch);
}

/// Every lane calls it when it has nothing left to do. True for the last one: it finishes the
/// operation.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE bool is_last_to_leave(G group, const primitives::OpContext<Exec>& op) {
  group.sync();
  std::uint64_t others = 0;
  if (group.thread_rank() == 0) {
    // [sync:leave] release: this lane's work. acquire: that of the lanes before it.
    others = Exec::Memory::fetch_add_acq_rel_gpu(op.stage(layout::Stage::kLeft), std::uint64_t{1});
  }
  return group.broadcast(others) + 1 == static_cast<std::uint64_t>(op.params->num_lanes);
}

/// The last lane: counters start the next launch at zero; the epoch advances if the operation is
/// over.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void reset_local_state(G group,
                                      const primitives::OpContext<Exec>& op,
                                      bool is_over) {
  using Memory = typename Exec::Memory;
  layout::LocalState* local = op.local();
  primitives::for_each_strided(group, static_cast<int>(layout::Ticket::kNum), [&](std::int64_t i) {
    Memory::store(&local->tickets[i].value, std::uint64_t{0});
  });
  primitives::for_each_strided(group, static_cast<int>(layout::Stage::kNum), [&](std::int64_t i) {
    Memory::store(&local->stages[i].value, std::uint64_t{0});
  });
  auto* totals = op.template array<std::int32_t>(op.control().totals);
  primitives::for_each_strided(group, op.control().shape.max_experts,
                               [&](std::int64_t i) { Memory::store(totals + i, 0); });
  group.sync();
  if (group.thread_rank() != 0) return;
  if (verdict_of(op) != Verdict::kAccepted) report_refusal<Exec>(op.params, op.epoch);
  Memory::store(&local->rejected.value, std::uint64_t{0});
  Memory::store(&local->busy.value, std::uint64_t{0});
  if (is_over) Memory::store(&local->epoch.value, op.epoch);
}

}  // namespace ep::intranode
