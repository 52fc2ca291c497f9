// SPDX-License-Identifier: Apache-2.0
// Watched memory and its shadow: two sparse mappings.
#include "fabric/sim/space.h"

#include "base/check.h"

#include <sys/mman.h>

namespace ep::fabric::sim {
namespace {

void* reserve(std::size_t bytes) {
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  EP_CHECK(base != MAP_FAILED, "no address space for the simulator's memory");
  // Whole huge pages for a handful of bytes each would cost more than they save.
  madvise(base, bytes, MADV_NOHUGEPAGE);
  return base;
}

}  // namespace

Space::Space(int num_parts, std::size_t part_bytes)
    : num_parts_(num_parts),
      part_bytes_(part_bytes),
      bytes_(static_cast<std::size_t>(num_parts) * part_bytes),
      base_(static_cast<std::byte*>(reserve(bytes_))),
      cells_(static_cast<Cell*>(reserve(bytes_ / kGranule * sizeof(Cell)))) {}

Space::~Space() {
  munmap(base_, bytes_);
  munmap(cells_, bytes_ / kGranule * sizeof(Cell));
}

}  // namespace ep::fabric::sim
