// SPDX-License-Identifier: Apache-2.0
// Blocks of a rank's arena, for tensors that peers write into or read in place.
#pragma once

#include "fabric/segment.h"

#include <ep/status.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

namespace ep::fabric {

class PoolState;

/// A piece of the arena, given back to its pool on destruction. May outlive the pool and the arena:
/// it keeps its memory mapped. Movable by shared_ptr only.
class Block {
 public:
  /// For Pool only.
  Block(std::shared_ptr<PoolState> owner, Location location, std::int64_t bytes, std::byte* data);
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block();

  const Location location;
  /// As asked for, 0 included; the pool reserves a multiple of Pool::kAlignment.
  const std::int64_t bytes;
  /// Aligned to Pool::kAlignment, unique among live blocks also where bytes is 0.
  std::byte* const data;

 private:
  const std::shared_ptr<PoolState> owner_;
};

struct PoolOptions {
  /// A new segment has at least this many bytes.
  std::int64_t growth_bytes = 64 << 20;
  /// By when every peer must have mapped a new segment.
  std::chrono::milliseconds timeout{10'000};
};

/// Best fit over all segments of the pool, free neighbours joined. Any thread.
class Pool {
 public:
  static constexpr std::int64_t kAlignment = 256;
  /// Segments are multiples of this, so that huge pages fit.
  static constexpr std::int64_t kSegmentGranule = 2 << 20;

  /// `source` must outlive the pool, not the blocks.
  Pool(SegmentSource& source, const PoolOptions& options);
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool();

  /// Uninitialised memory; grows by a segment where no free block is large enough. 0 bytes are
  /// legal. Errors: kInvalidArgument for a negative size, kOutOfMemory, and those of
  /// SegmentSource::add_segment.
  Result<std::shared_ptr<Block>> allocate(std::int64_t bytes);

  /// The same from what the pool has; null where no free block is large enough.
  Result<std::shared_ptr<Block>> allocate_in_place(std::int64_t bytes);

  /// Grows, if needed, so that allocate(bytes) can be served from what the pool has. Errors as
  /// allocate.
  Status reserve(std::int64_t bytes);

  /// SegmentSource::locate.
  std::optional<Location> locate(const void* address, std::int64_t bytes) const;

  /// Bytes of the segments that this pool added.
  std::int64_t total_bytes() const;
  std::int64_t used_bytes() const;
  int num_free_blocks() const;
  /// Size of the segment that serves a request of `bytes`: for plans.
  static std::int64_t segment_bytes_for(std::int64_t bytes, std::int64_t growth_bytes);

 private:
  Status grow(std::int64_t reserved_bytes);

  SegmentSource& source_;
  const PoolOptions options_;
  const std::shared_ptr<PoolState> state_;
  /// One thread grows; the others wait for what it brings.
  std::mutex growing_;
};

}  // namespace ep::fabric
