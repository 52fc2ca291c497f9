// SPDX-License-Identifier: Apache-2.0
// What every role of an operation knows: the group's window, the rank, the epoch.
#pragma once

#include "base/macros.h"
#include "layout/control.h"
#include "layout/report.h"
#include "primitives/executor.h"

#include <cstddef>
#include <cstdint>

namespace ep::primitives {

/// Host-decided part that all operations share; plain data, passed to a kernel by value.
struct OpParams {
  /// [num_ranks][layout::kMaxSegments] base addresses; read by Executor::peer_segment.
  const void* peer_table = nullptr;
  /// Segment 0, which begins with the control region: of this rank, and of the first ranks, so that
  /// an operation begins without a look into the table.
  static constexpr int kNumBases = 8;
  std::byte* own = nullptr;
  std::byte* bases[kNumBases] = {};
  /// [num_ranks]; read by Executor::is_gone.
  const void* gone_flags = nullptr;
  /// Where the announcements of all ranks lie: `own`, unless this is the operation of a delegate,
  /// which reads those of its host.
  std::byte* board = nullptr;
  /// The ranks of this node, which have memory and experts here; sources are all ranks.
  int first_peer = 0;
  int num_peers = 1;
  /// [num_ranks]: the rank of this node that stands in for a rank of another one. Null: all ranks
  /// are of this node.
  const std::int32_t* host_of = nullptr;
  layout::ControlLayout layout;
  /// Fields of this rank; the head is made by the announcing role.
  layout::OpAnnouncement announcement;
  /// Not kAccepted: arguments were refused before the launch.
  std::uint32_t rejection = layout::kAccepted;
  int rank = 0;
  /// Lanes of all roles and channels: the last one to leave finishes the operation.
  int num_lanes = 1;
  std::uint64_t timeout_ns = 0;
  /// Where this rank's roles report refusals and faults; null: nowhere.
  layout::OpReport* report = nullptr;
  /// The host's own number of this call, for the report.
  std::uint64_t call = 0;
  /// GPU, for tests: each CTA adds 1 to the word of its SM. Null: nothing is counted.
  std::uint32_t* ctas_by_sm = nullptr;
  /// Host: rows are too many to be read from a cache.
  bool streams_rows = false;
};

/// Built once per lane, by value.
template <Executor Exec>
struct OpContext {
  using Memory = typename Exec::Memory;

  const OpParams* params;
  std::byte* own;  // this rank's control region
  std::uint64_t epoch;

  EP_HOST_DEVICE explicit OpContext(const OpParams& op_params)
      : params(&op_params), own(op_params.own), epoch(0) {
    // Plain: written by the last lane of the previous operation, which the launch orders before
    // this one.
    epoch = Memory::load(&local()->epoch.value) + 1;
  }

  /// For the rest of an operation that is under way.
  EP_HOST_DEVICE OpContext(const OpParams& op_params, std::uint64_t epoch_now)
      : params(&op_params), own(op_params.own), epoch(epoch_now) {}

  EP_HOST_DEVICE int rank() const { return params->rank; }
  EP_HOST_DEVICE int num_ranks() const { return params->layout.shape.num_ranks; }
  /// Of this node.
  EP_HOST_DEVICE int first_peer() const { return params->first_peer; }
  EP_HOST_DEVICE int num_peers() const { return params->num_peers; }
  EP_HOST_DEVICE bool is_peer(int rank) const {
    return rank >= params->first_peer && rank < params->first_peer + params->num_peers;
  }
  /// Who does for the rank what is done for it on this node.
  EP_HOST_DEVICE int host_of(int rank) const {
    return params->host_of == nullptr ? rank : params->host_of[rank];
  }
  EP_HOST_DEVICE std::uint32_t tag() const { return layout::tag_of(epoch); }
  EP_HOST_DEVICE const layout::ControlLayout& control() const { return params->layout; }

  EP_HOST_DEVICE layout::LocalState* local() const {
    return array<layout::LocalState>(params->layout.local);
  }
  EP_HOST_DEVICE std::uint64_t* ticket(layout::Ticket kind) const {
    return &local()->tickets[static_cast<int>(kind)].value;
  }
  EP_HOST_DEVICE std::uint64_t* stage(layout::Stage stage) const {
    return &local()->stages[static_cast<int>(stage)].value;
  }

  /// An array of this rank's control region.
  template <class T>
  EP_HOST_DEVICE T* array(std::int64_t offset) const {
    return layout::array_at<T>(own, offset);
  }
  /// The same array at a peer.
  template <class T>
  EP_HOST_DEVICE T* array_of(int peer, std::int64_t offset) const {
    return layout::array_at<T>(base_of(peer), offset);
  }
  /// A block of a peer's arena.
  EP_HOST_DEVICE std::byte* address_of(int peer, layout::Location location) const {
    return Exec::peer_segment(params->peer_table, peer * layout::kMaxSegments +
                                                      static_cast<std::int64_t>(location.segment)) +
           location.offset_units * layout::kLocationUnit;
  }

  /// What `src` announced to this rank.
  EP_HOST_DEVICE layout::AnnouncedOp* op_from(int src) const {
    return layout::array_at<layout::AnnouncedOp>(params->board, params->layout.ops) +
           bank_index(src);
  }
  EP_HOST_DEVICE layout::AnnouncedBlock* block_from(int src) const {
    return layout::array_at<layout::AnnouncedBlock>(params->board, params->layout.blocks) +
           bank_index(src);
  }
  EP_HOST_DEVICE std::uint64_t* counts_from(int src) const {
    return layout::array_at<std::uint64_t>(params->board, params->layout.counts) +
           bank_index(src) * params->layout.shape.max_columns();
  }

  // Values that `src` announced. Precondition: the resolve step has seen the words. Relaxed: they
  // were stored so, and say themselves that they are there.
  EP_HOST_DEVICE std::uint32_t value_from(int src, layout::OpField field) const {
    return value_of(&op_from(src)->fields[static_cast<int>(field)]);
  }
  EP_HOST_DEVICE std::uint32_t value_from(int src, layout::BlockField field) const {
    return value_of(&block_from(src)->fields[static_cast<int>(field)]);
  }
  EP_HOST_DEVICE layout::Location value_from(int src, layout::Section section) const {
    const std::uint64_t* fields = block_from(src)->fields + layout::first_field_of(section);
    return {value_of(fields), value_of(fields + 1)};
  }
  EP_HOST_DEVICE std::int32_t count_from(int src, int column) const {
    return static_cast<std::int32_t>(value_of(counts_from(src) + column));
  }

  /// What `src` announced, in the copy that `peer` holds.
  EP_HOST_DEVICE layout::AnnouncedOp* op_at(int peer, int src) const {
    return array_of<layout::AnnouncedOp>(peer, params->layout.ops) + bank_index(src);
  }
  EP_HOST_DEVICE layout::AnnouncedBlock* block_at(int peer, int src) const {
    return array_of<layout::AnnouncedBlock>(peer, params->layout.blocks) + bank_index(src);
  }
  EP_HOST_DEVICE std::uint64_t* counts_at(int peer, int src) const {
    return array_of<std::uint64_t>(peer, params->layout.counts) +
           bank_index(src) * params->layout.shape.max_columns();
  }

  /// False once any rank gave up: no lane may start another peer-visible side effect.
  EP_HOST_DEVICE bool may_proceed() const {
    // Relaxed: it ends work and publishes nothing.
    if (Memory::load_relaxed_sys(&array<layout::Counter>(params->layout.abort)->value) == 0)
      return true;
    report_failure();
    return false;
  }

  /// The host learns that a lane of this rank gave up.
  EP_HOST_DEVICE void report_failure() const {
    // Relaxed: a hint to look at the fault record, whose own word orders its contents.
    if (params->report != nullptr)
      Memory::store_relaxed_sys(&params->report->has_failed, std::uint64_t{1});
  }

 private:
  EP_HOST_DEVICE std::byte* base_of(int peer) const {
    if (peer < OpParams::kNumBases) return params->bases[peer];
    return Exec::peer_segment(params->peer_table, peer * layout::kMaxSegments);
  }
  EP_HOST_DEVICE static std::uint32_t value_of(const std::uint64_t* word) {
    return layout::value_in(Memory::load_relaxed_sys(word));
  }
  EP_HOST_DEVICE std::int64_t bank_index(int src) const {
    return static_cast<std::int64_t>(layout::bank_of(epoch)) * num_ranks() + src;
  }
};

/// Calls step(rank) for every rank of this node, shared out over the group.
template <Executor Exec, Coop G, class Step>
EP_HOST_DEVICE void for_each_peer(G group, const OpContext<Exec>& op, Step step) {
  for_each_strided(group, op.num_peers(),
                   [&](std::int64_t i) { step(op.first_peer() + static_cast<int>(i)); });
}

/// may_proceed() for loops that have no time to wait for its load: each call answers with what the
/// call before it loaded, the same for all threads of the group.
template <Executor Exec>
class AbortWatch {
 public:
  EP_HOST_DEVICE explicit AbortWatch(const OpContext<Exec>& op)
      : op_(&op), word_(&op.template array<layout::Counter>(op.control().abort)->value) {}

  template <Coop G>
  EP_HOST_DEVICE bool may_proceed(G group) {
    const bool is_aborted = group.broadcast(seen_) != 0;
    // Relaxed: see OpContext::may_proceed.
    if (group.thread_rank() == 0) seen_ = Exec::Memory::load_relaxed_sys(word_);
    if (is_aborted) op_->report_failure();
    return !is_aborted;
  }

 private:
  const OpContext<Exec>* op_;
  const std::uint64_t* word_;
  std::uint64_t seen_ = 0;
};

}  // namespace ep::primitives
