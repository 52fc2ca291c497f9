// SPDX-License-Identifier: Apache-2.0
// What a layout must be: a list of regions in order, each on a line of its own, nothing between.
#pragma once

#include "layout/regions.h"

#include <cstdint>
#include <span>
#include <string>

namespace ep::test {

struct NamedRegion {
  const char* name;
  std::int64_t offset;
  std::int64_t bytes;
};

/// What is wrong with the regions, which must fill [0, total_bytes) in this order; empty if
/// nothing.
inline std::string layout_mismatch(std::span<const NamedRegion> regions, std::int64_t total_bytes) {
  std::int64_t end = 0;
  for (const NamedRegion& region : regions) {
    if (region.offset != end) {
      return std::string(region.name) + " begins at " + std::to_string(region.offset) +
             ", expected " + std::to_string(end);
    }
    end = (region.offset + region.bytes + layout::kLineBytes - 1) / layout::kLineBytes *
          layout::kLineBytes;
  }
  if (end == total_bytes) return {};
  return "the size is " + std::to_string(total_bytes) + ", expected " + std::to_string(end);
}

}  // namespace ep::test
