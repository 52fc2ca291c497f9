// SPDX-License-Identifier: Apache-2.0
// What an arena is made of, independent of the memory's kind: segments that every peer has mapped.
#pragma once

#include "base/deadline.h"
#include "layout/announcement.h"

#include <ep/status.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace ep::fabric {

/// Ids of one arena lie in [0, kMaxSegments) and are never reused, so a published (segment, offset)
/// never changes its meaning.
inline constexpr int kMaxSegments = static_cast<int>(layout::kMaxSegments);

/// A byte of a rank's arena, in a form that holds on every rank.
struct Location {
  int segment = 0;
  std::int64_t offset = 0;

  friend bool operator==(const Location&, const Location&) = default;
};

/// A segment of this rank, mapped by every peer.
struct Segment {
  int id = 0;
  std::byte* base = nullptr;
  std::int64_t bytes = 0;
  /// Keeps the memory mapped here, also when the arena has gone.
  std::shared_ptr<const void> keep_alive;
};

/// Where a Pool gets memory from.
class SegmentSource {
 public:
  SegmentSource() = default;
  SegmentSource(const SegmentSource&) = delete;
  SegmentSource& operator=(const SegmentSource&) = delete;
  virtual ~SegmentSource() = default;

  /// Local; returns once every peer has mapped the segment. Any thread.
  virtual Result<Segment> add_segment(std::int64_t bytes, base::Deadline deadline) = 0;

  /// Where `bytes` bytes from `address` lie, if all of them lie in one segment of this rank. Any
  /// thread.
  virtual std::optional<Location> locate(const void* address, std::int64_t bytes) const = 0;
};

}  // namespace ep::fabric
