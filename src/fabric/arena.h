// SPDX-License-Identifier: Apache-2.0
// One rank's memory that all ranks of its LSA team load and store, whatever kind of memory it is.
#pragma once

#include "fabric/segment.h"

#include <cstddef>
#include <cstdint>

namespace ep::fabric {

class Arena : public SegmentSource {
 public:
  virtual int rank() const = 0;
  virtual int num_ranks() const = 0;

  /// nullptr where not mapped. Preconditions: ranks and ids in range.
  virtual std::byte* base(int peer, int segment) const = 0;

  /// What roles read, as Executor::peer_segment and Executor::is_gone do.
  struct RoleView {
    /// [num_ranks][kMaxSegments] bases; a peer's entry is stored before that peer's add_segment
    /// returns.
    const void* peer_table;
    /// [num_ranks]: 1 (release) once a peer's process has died or its arena was destroyed; never
    /// reset.
    const void* gone_flags;
  };
  virtual RoleView role_view() const = 0;

  /// Of this rank's segments, segment 0 included.
  virtual std::int64_t total_bytes() const = 0;
  virtual int num_segments() const = 0;
};

}  // namespace ep::fabric
