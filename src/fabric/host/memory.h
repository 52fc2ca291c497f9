// SPDX-License-Identifier: Apache-2.0
// Anonymous shared memory: a memfd and its mapping.
#pragma once

#include "base/unique_fd.h"
#include "fabric/segment_memory.h"

#include <ep/status.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>

namespace ep::fabric {

/// Segments of a HostArena. Roles read the arena's own table of bases.
class HostMemory final : public SegmentMemory {
 public:
  explicit HostMemory(int num_ranks);

  /// Errors: kOutOfMemory where this machine has not that much; kFabric.
  Result<Created> create(std::int64_t bytes, std::int64_t used_bytes) override;
  /// Errors: kOutOfMemory, kFabric.
  Result<std::shared_ptr<Mapping>> map(const SegmentHandle& handle, std::int64_t bytes) override;
  Status map_failure(std::string_view what, int native_code) const override;

  std::atomic<std::uint32_t>* gone_flags() const override { return gone_.get(); }

 private:
  const std::unique_ptr<std::atomic<std::uint32_t>[]> gone_;
};

/// A zeroed memfd of that size which can neither shrink nor grow, so that no holder can make
/// another fault. Errors: kOutOfMemory where this machine has not that much, or a limit of the
/// process forbids it; kFabric.
Result<base::UniqueFd> create_memory(std::int64_t bytes);

/// Whether a descriptor that came from a peer is such a memfd of that size. Errors: kFabric.
Status check_memory(int fd, std::int64_t bytes);

/// RAM and swap of this machine.
std::int64_t machine_memory_bytes();

}  // namespace ep::fabric
