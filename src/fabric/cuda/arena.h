// SPDX-License-Identifier: Apache-2.0
// One rank's memory on a GPU, which the GPUs of all ranks of this host load and store.
#pragma once

#include "base/deadline.h"
#include "fabric/arena.h"

#include <ep/bootstrap.h>
#include <ep/status.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace ep::fabric {

class ArenaState;

/// The protocol of HostArena over device memory: handles of allocations (FABRIC handles where all
/// ranks have them, else descriptors) travel over Unix sockets, and ranks of one process share the
/// owner's mapping. Several ranks may use one device. No call waits for work other than its own.
///
/// A mapping ends when its last holder goes: here the arena and Segment::keep_alive, in a peer its
/// arena. Whoever lets go makes sure that no kernel or copy uses the memory any more; that includes
/// kernels of this rank that access segments of peers.
class CudaArena final : public Arena {
 public:
  /// Collective: all ranks of `bootstrap`, which is not used after the call. `device` is an ordinal
  /// of this process. Segment 0 has `control_bytes` zeroed bytes, rounded up as segment_bytes()
  /// says; the size must be equal on all ranks. On return segment 0 of every rank is mapped here.
  /// Errors, on all ranks: kUnsupported for no driver or one older than CUDA 12.8, no device, a
  /// compute capability below 8.0, two ranks whose devices have no P2P with atomics, ranks on other
  /// hosts; kInvalidArgument for sizes that differ or an ordinal that there is not; kOutOfMemory,
  /// kCuda, kFabric, kPeerTimeout.
  static Result<std::unique_ptr<CudaArena>> create(Bootstrap& bootstrap,
                                                   int device,
                                                   std::int64_t control_bytes,
                                                   base::Deadline deadline);

  /// Local, any order. This rank's segments stay mapped in its peers until they destroy their
  /// arenas, and here while a Segment::keep_alive lives. No kernel that reads role_view() may run.
  ~CudaArena() override;

  /// What a segment of `bytes` > 0 bytes takes of the device's memory.
  static std::int64_t segment_bytes(std::int64_t bytes);
  /// What an arena takes of it beside its segments: the table that roles read.
  static std::int64_t overhead_bytes(int num_ranks);

  int rank() const override;
  int num_ranks() const override;
  std::byte* base(int peer, int segment) const override;
  /// For kernels on this rank's device. The table lies in its memory, the flags in pinned memory of
  /// the host.
  RoleView role_view() const override;

  /// Zeroed memory; Segment::bytes is segment_bytes(bytes). Waits until it is zeroed: beside a
  /// kernel that leaves no multiprocessor free, as long as that kernel runs. Errors: as
  /// HostArena::add_segment, and kCuda.
  Result<Segment> add_segment(std::int64_t bytes, base::Deadline deadline) override;

  std::optional<Location> locate(const void* address, std::int64_t bytes) const override;

  /// As segment_bytes() counts them.
  std::int64_t total_bytes() const override;
  int num_segments() const override;

 private:
  explicit CudaArena(std::unique_ptr<ArenaState> state);
  const std::unique_ptr<ArenaState> state_;
};

}  // namespace ep::fabric
