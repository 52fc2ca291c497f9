// SPDX-License-Identifier: Apache-2.0
// The memory that a simulated run watches: the arenas of all ranks and the scratch of their lanes,
// and, for every four bytes of it, who touched them last.
#pragma once

#include "fabric/sim/site.h"
#include "fabric/sim/vector_clock.h"

#include <cstddef>
#include <cstdint>

namespace ep::fabric::sim {

/// One access of a granule. `clock` 0: none.
struct Access {
  Clock clock = 0;
  AgentId agent = 0;
  bool is_write : 1 = false;
  bool is_atomic : 1 = false;
  bool is_gpu : 1 = false;    ///< atomic, of scope gpu
  bool is_async : 1 = false;  ///< of an agent whose accesses have no order among themselves
  SiteId site = 0;

  friend bool operator==(const Access&, const Access&) = default;
};

/// What is known of a granule.
struct Cell {
  Access write;              ///< the newest
  Access read;               ///< the newest since
  std::uint32_t others = 0;  ///< Checker: accesses that neither of these comes after; 0: none
  std::uint32_t word = 0;    ///< Checker: the atomic word that begins here; 0: none
};

/// Parts of equal size, one per rank and one for scratch, zeroed at first. Memory is committed
/// where it is touched.
class Space {
 public:
  static constexpr std::size_t kGranule = 4;

  Space(int num_parts, std::size_t part_bytes);
  ~Space();
  Space(const Space&) = delete;
  Space& operator=(const Space&) = delete;

  int num_parts() const { return num_parts_; }
  std::size_t part_bytes() const { return part_bytes_; }
  std::byte* part(int index) const { return base_ + static_cast<std::size_t>(index) * part_bytes_; }

  bool contains(const void* address) const {
    return static_cast<std::size_t>(static_cast<const std::byte*>(address) - base_) < bytes_;
  }
  int part_of(const void* address) const {
    return static_cast<int>(offset_of(address) / part_bytes_);
  }
  /// Precondition: contains(address).
  Cell& cell(const void* address) const { return cells_[offset_of(address) / kGranule]; }
  std::size_t offset_of(const void* address) const {
    return static_cast<std::size_t>(static_cast<const std::byte*>(address) - base_);
  }

 private:
  int num_parts_;
  std::size_t part_bytes_;
  std::size_t bytes_;
  std::byte* base_;
  Cell* cells_;
};

}  // namespace ep::fabric::sim
