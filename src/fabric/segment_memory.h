// SPDX-License-Identifier: Apache-2.0
// What an arena needs of a kind of memory: to create a segment, to map a peer's, to tell the roles.
#pragma once

#include "fabric/arena_identity.h"
#include "fabric/mapping.h"
#include "fabric/segment_handle.h"

#include <ep/status.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace ep::fabric {

/// The arena calls create() from one thread at a time, map() from its service thread, publish()
/// from both at once.
class SegmentMemory {
 public:
  SegmentMemory() = default;
  SegmentMemory(const SegmentMemory&) = delete;
  SegmentMemory& operator=(const SegmentMemory&) = delete;
  virtual ~SegmentMemory() = default;

  /// Where this rank's memory lies; part of its identity.
  virtual DeviceIdentity device() const { return {}; }
  /// Once, before any other call: the ranks that will map this memory, checked.
  virtual void meet(int /*rank*/, const std::vector<ArenaIdentity>& /*identities*/) {}

  struct Created {
    /// What peers of other processes map.
    SegmentHandle handle;
    std::shared_ptr<Mapping> mapping;
  };
  /// Zeroed memory of at least `bytes` > 0 bytes, beside `used_bytes` that this rank has already.
  virtual Result<Created> create(std::int64_t bytes, std::int64_t used_bytes) = 0;
  /// Maps what a peer created with `bytes` bytes. The handle is not kept. Errors: memory that is
  /// not what was announced; native_code() of others is a code for map_failure().
  virtual Result<std::shared_ptr<Mapping>> map(const SegmentHandle& handle, std::int64_t bytes) = 0;
  /// The failure of a peer's map().
  virtual Status map_failure(std::string_view what, int native_code) const = 0;

  /// Stores a base where roles read it, nullptr for a segment that was withdrawn; stored on return.
  /// Only where roles do not read the arena's own table.
  virtual Status publish(int /*peer*/, int /*segment*/, std::byte* /*base*/) { return Status(); }
  /// [num_ranks], in memory that roles read.
  virtual std::atomic<std::uint32_t>* gone_flags() const = 0;
};

}  // namespace ep::fabric
