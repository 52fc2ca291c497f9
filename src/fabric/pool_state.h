// SPDX-License-Identifier: Apache-2.0
// The books of a Pool: which bytes of which segment are free.
#pragma once

#include "fabric/segment.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>

namespace ep::fabric {

/// Shared by the pool and its blocks; the last of them unmaps the memory. All sizes are multiples
/// of Pool::kAlignment. Any thread.
class PoolState {
 public:
  PoolState() = default;
  PoolState(const PoolState&) = delete;
  PoolState& operator=(const PoolState&) = delete;
  ~PoolState();

  void add(const Segment& segment);

  struct Piece {
    Location location;
    std::byte* data;
  };
  /// The smallest free block that fits, its first bytes; among equals the lowest (segment, offset).
  std::optional<Piece> take(std::int64_t reserved_bytes);
  void give_back(Location location, std::int64_t reserved_bytes);

  bool has_room_for(std::int64_t reserved_bytes) const;
  std::int64_t total_bytes() const;
  std::int64_t free_bytes() const;
  int num_free_blocks() const;

 private:
  struct Area {
    Segment segment;
    /// Offset to size; neighbours are joined, so no two of them touch.
    std::map<std::int64_t, std::int64_t> free;
  };
  /// (size, segment, offset): the order of best fit.
  using FitKey = std::tuple<std::int64_t, int, std::int64_t>;

  void insert_free(Area& area, std::int64_t offset, std::int64_t bytes);
  void erase_free(Area& area, std::map<std::int64_t, std::int64_t>::iterator block);

  mutable std::mutex mutex_;
  std::map<int, Area> areas_;
  /// The free blocks of all areas.
  std::set<FitKey> fits_;
  std::int64_t total_bytes_ = 0;
  std::int64_t free_bytes_ = 0;
};

}  // namespace ep::fabric
