// SPDX-License-Identifier: Apache-2.0
// One rank's memory that all ranks of this host load and store.
#pragma once

#include "base/deadline.h"
#include "fabric/arena.h"

#include <ep/bootstrap.h>
#include <ep/status.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace ep::fabric {

class ArenaState;

/// Segments are anonymous memory (memfd) whose descriptors travel over Unix sockets, so nothing has
/// a name that another user could open and nothing is left after a crash. Ranks of one process
/// share the owner's mapping. Peers must have this rank's uid and the pid that they announced
/// through the bootstrap.
class HostArena final : public Arena {
 public:
  /// Collective: all ranks of `bootstrap`, which is not used after the call. Nodes are runs of
  /// ranks, `node` is this rank's; memory is shared within them. Segment 0 has `control_bytes`
  /// zeroed bytes; the size must be equal on all ranks. On return segment 0 of every rank of the
  /// node is mapped here. Errors, on all ranks: kInvalidArgument for sizes that differ,
  /// kUnsupported naming ranks of other hosts, kOutOfMemory, kFabric, kPeerTimeout.
  static Result<std::unique_ptr<HostArena>> create(Bootstrap& bootstrap,
                                                   std::int64_t control_bytes,
                                                   base::Deadline deadline,
                                                   int node = 0);

  /// Before the first operation: where roles of this rank find segment 0 of a rank of another node,
  /// in the memory of whoever stands in for it here.
  void stand_in(int rank, std::byte* base);
  /// A rank of another node is gone: as for ranks of this node, see RoleView::gone_flags.
  void mark_gone(int rank);

  /// Local, any order. This rank's segments stay mapped in its peers until they destroy their
  /// arenas, and here while a Segment::keep_alive lives.
  ~HostArena() override;

  int rank() const override;
  int num_ranks() const override;
  std::byte* base(int peer, int segment) const override;
  RoleView role_view() const override { return {peer_table(), gone_flags()}; }

  /// RoleView::peer_table.
  const std::atomic<std::byte*>* peer_table() const;
  /// RoleView::gone_flags.
  const std::atomic<std::uint32_t>* gone_flags() const;

  /// Zeroed memory, committed by the operating system when first written.
  /// Errors: kInvalidArgument unless bytes > 0, kOutOfMemory (more than this machine has, or
  /// kMaxSegments used up), kPeerTimeout naming the peers that have not mapped it, or the first
  /// that is gone. A failed id is not used again.
  Result<Segment> add_segment(std::int64_t bytes, base::Deadline deadline) override;

  std::optional<Location> locate(const void* address, std::int64_t bytes) const override;

  std::int64_t total_bytes() const override;
  int num_segments() const override;

 private:
  explicit HostArena(std::unique_ptr<ArenaState> state);
  const std::unique_ptr<ArenaState> state_;
};

}  // namespace ep::fabric
