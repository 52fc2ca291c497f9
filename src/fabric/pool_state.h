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
#include <vector>

namespace ep::fabric {

/// Shared by the pool and its blocks; the last of them unmaps the memory. All sizes are multiples
/// of Pool::kAlignment. Any thread.
class PoolState {
 public:
  PoolState() { recent_.reserve(kMaxRecent); }
  PoolState(const PoolState&) = delete;
  PoolState& operator=(const PoolState&) = delete;
  ~PoolState();

  void add(const Segment& segment);

  struct Piece {
    Location location;
    std::byte* data;
  };
  /// A block of exactly this size that came back lately; else the smallest free block that fits,
  /// its first bytes; among equals the lowest (segment, offset).
  std::optional<Piece> take(std::int64_t reserved_bytes);
  void give_back(Location location, std::int64_t reserved_bytes);

  bool has_room_for(std::int64_t reserved_bytes);
  std::int64_t total_bytes() const;
  std::int64_t free_bytes() const;
  /// Once neighbours are joined.
  int num_free_blocks();

 private:
  /// Blocks that came back lately and have not been joined with their neighbours: calls of one
  /// shape take them again, and neither search nor change a tree for it (docs/tuning.md).
  static constexpr std::size_t kMaxRecent = 16;
  struct Recent {
    Location location;
    std::int64_t bytes;
  };

  struct Area {
    Segment segment;
    /// Offset to size; neighbours are joined, so no two of them touch.
    std::map<std::int64_t, std::int64_t> free;
  };
  /// (size, segment, offset): the order of best fit.
  using FitKey = std::tuple<std::int64_t, int, std::int64_t>;

  std::byte* address_of(Location location) const;
  std::optional<Location> take_recent(std::int64_t bytes);
  std::optional<Location> take_best_fit(std::int64_t bytes);
  void join(const Recent& freed);
  void join_recent();
  void insert_free(Area& area, std::int64_t offset, std::int64_t bytes);
  void erase_free(Area& area, std::map<std::int64_t, std::int64_t>::iterator block);

  mutable std::mutex mutex_;
  std::map<int, Area> areas_;
  /// Oldest first.
  std::vector<Recent> recent_;
  /// The free blocks of all areas, but for recent ones.
  std::set<FitKey> fits_;
  std::int64_t total_bytes_ = 0;
  /// Recent blocks included.
  std::int64_t free_bytes_ = 0;
};

}  // namespace ep::fabric
