// SPDX-License-Identifier: Apache-2.0
// The arenas of all simulated ranks, in the watched memory of one machine.
#pragma once

#include "fabric/arena.h"
#include "fabric/sim/space.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace ep::fabric::sim {

/// What the ranks share.
struct ArenaTable {
  ArenaTable(Space& of_machine, int of_ranks);

  Space* space;
  int num_ranks;
  std::vector<std::byte*> bases;     ///< [num_ranks][kMaxSegments]
  std::vector<std::size_t> used;     ///< bytes of each rank's part
  std::vector<std::uint32_t*> gone;  ///< [num_ranks], in each rank's part: u32[num_ranks]
};

class Arena final : public fabric::Arena {
 public:
  /// With segment 0.
  Arena(std::shared_ptr<ArenaTable> table, int rank, std::int64_t control_bytes);

  int rank() const override { return rank_; }
  int num_ranks() const override { return table_->num_ranks; }
  std::byte* base(int peer, int segment) const override;
  RoleView role_view() const override;
  Result<Segment> add_segment(std::int64_t bytes, base::Deadline deadline) override;
  std::optional<Location> locate(const void* address, std::int64_t bytes) const override;
  std::int64_t total_bytes() const override;
  int num_segments() const override { return static_cast<int>(sizes_.size()); }

 private:
  Result<Segment> cut(std::int64_t bytes);

  std::shared_ptr<ArenaTable> table_;
  int rank_;
  std::vector<std::int64_t> sizes_;  // of the segments
};

}  // namespace ep::fabric::sim
