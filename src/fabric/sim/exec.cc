// SPDX-License-Identifier: Apache-2.0
// What the simulated executor does to whole rows: each thread its share, noted before it happens.
#include "fabric/sim/exec.h"

#include "fabric/sim/machine.h"
#include "primitives/row_math.h"

#include <cstring>

namespace ep::fabric::sim {
namespace {

void note_read(const void* address, std::int64_t bytes, const Exec::At& at) {
  Machine& machine = *Machine::current();
  machine.checker().read(machine.checker().actor(machine.running().agent), address,
                         static_cast<std::size_t>(bytes), machine.sites().of(at));
}
void note_write(const void* address, std::int64_t bytes, const Exec::At& at) {
  Machine& machine = *Machine::current();
  machine.checker().write(machine.checker().actor(machine.running().agent), address,
                          static_cast<std::size_t>(bytes), machine.sites().of(at));
}

}  // namespace

Lane& Exec::lane() { return *Machine::current()->running().lane; }

std::uint64_t Exec::clock_ns() { return Machine::current()->now_ns(); }

void Exec::relax(int /*polls*/) { Machine::current()->relax(); }

void Exec::scale_row(const Group& group,
                     std::byte* dst,
                     const std::byte* src,
                     float weight,
                     const primitives::SumSpec& spec,
                     const At& at) {
  const RowShare share(group, spec.num_elems * size_of(spec.dtype));
  note_read(src + share.begin, share.size(), at);
  note_write(dst + share.begin, share.size(), at);
  primitives::scale_row(dst + share.begin, src + share.begin, weight, spec.dtype,
                        share.size() / size_of(spec.dtype), primitives::RowStore::kCached);
}

float Exec::dot_rows(const Group& group,
                     const std::byte* a,
                     const std::byte* b,
                     const primitives::SumSpec& spec,
                     const At& at) {
  const RowShare share(group, spec.num_elems * size_of(spec.dtype));
  note_read(a + share.begin, share.size(), at);
  note_read(b + share.begin, share.size(), at);
  const float product = primitives::dot_rows(a, b, spec.dtype, spec.num_elems);
  group.join(at);  // a warp's threads meet before they fold their sums (row_dot.cuh)
  return product;
}

std::int32_t Exec::scan_masks(const Group& group,
                              const std::uint32_t* masks,
                              std::int32_t* prefixes,
                              std::int64_t count,
                              const At& at) {
  std::int64_t before = 0;
  for (std::int64_t first = 0; first < count; first += group.size()) {
    const std::int64_t i = first + group.thread_rank();
    std::int64_t bits = 0;
    if (i < count) {
      note_read(masks + i, sizeof(*masks), at);
      bits = std::popcount(masks[i]);
    }
    const std::int64_t through = before + group.inclusive_sum(bits, at);
    if (i < count) {
      note_write(prefixes + i, sizeof(*prefixes), at);
      prefixes[i] = static_cast<std::int32_t>(through - bits);
    }
    before = group.last_of(through, at);
  }
  return static_cast<std::int32_t>(before);
}

void Exec::copy_bytes(
    const Group& group, std::byte* dst, const std::byte* src, std::int64_t bytes, const At& at) {
  const RowShare share(group, bytes);
  note_read(src + share.begin, share.size(), at);
  note_write(dst + share.begin, share.size(), at);
  std::memcpy(dst + share.begin, src + share.begin, static_cast<std::size_t>(share.size()));
}

void Exec::zero_bytes(const Group& group, std::byte* dst, std::int64_t bytes, const At& at) {
  const RowShare share(group, bytes);
  note_write(dst + share.begin, share.size(), at);
  std::memset(dst + share.begin, 0, static_cast<std::size_t>(share.size()));
}

}  // namespace ep::fabric::sim
