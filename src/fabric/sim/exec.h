// SPDX-License-Identifier: Apache-2.0
// The simulated executor: a lane is a group of fibers, rows go through a modelled copy unit, every
// access of watched memory is checked.
#pragma once

#include "fabric/sim/bulk.h"
#include "fabric/sim/group.h"
#include "fabric/sim/lane.h"
#include "fabric/sim/memory.h"
#include "fabric/sim/reducer.h"
#include "primitives/executor.h"
#include "primitives/op_context.h"
#include "primitives/row_reducer.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <source_location>

namespace ep::fabric::sim {

/// The executor is a GPU's in what it promises (primitives/cuda_exec.cuh); where that is more than
/// a host needs, roles show their mistakes here. Roles are compiled with the calls that
/// ThreadSanitizer wants at plain accesses (hooks.cc), so that scratch and tables are watched, too.
struct Exec {
  using Memory = sim::Memory;
  using Group = sim::Group;
  using RowPipe = sim::RowPipe;
  using RowReducer = sim::RowReducer;
  using At = std::source_location;

  static RowPipe make_row_pipe(const Group& group,
                               const primitives::Lane& /*lane*/,
                               const primitives::OpParams& /*params*/) {
    return RowPipe(group, lane());
  }
  static RowReducer make_row_reducer(const Group& group,
                                     const primitives::Lane& /*lane*/,
                                     const primitives::OpParams& /*params*/,
                                     const primitives::SumSpec& spec) {
    return RowReducer(group, lane(), spec);
  }

  static std::byte* peer_segment(const void* table, std::int64_t index) {
    return static_cast<std::byte* const*>(table)[index];
  }
  static bool is_gone(const void* flags, int peer, const At& at = At::current()) {
    // [sync:gone] acquire: everything the peer wrote before it left. Released by the test that
    // ends a rank.
    return Memory::load_acquire_sys(static_cast<const std::uint32_t*>(flags) + peer, at) != 0;
  }
  static std::uint64_t clock_ns();
  static void relax(int polls);

  static void scale_row(const Group& group,
                        std::byte* dst,
                        const std::byte* src,
                        float weight,
                        const primitives::SumSpec& spec,
                        const At& at = At::current());
  static float dot_rows(const Group& group,
                        const std::byte* a,
                        const std::byte* b,
                        const primitives::SumSpec& spec,
                        const At& at = At::current());
  static int popcount(std::uint32_t mask) { return std::popcount(mask); }
  static void or_scratch(std::uint32_t* word, std::uint32_t bit, const At& at = At::current()) {
    or_atomic({word, sizeof(*word), Scope::kGpu}, bit, at);
  }
  /// prefixes[i] = bits in masks[0, i). Returns the bits in all of them.
  static std::int32_t scan_masks(const Group& group,
                                 const std::uint32_t* masks,
                                 std::int32_t* prefixes,
                                 std::int64_t count,
                                 const At& at = At::current());
  static void copy_bytes(const Group& group,
                         std::byte* dst,
                         const std::byte* src,
                         std::int64_t bytes,
                         const At& at = At::current());
  static void zero_bytes(const Group& group,
                         std::byte* dst,
                         std::int64_t bytes,
                         const At& at = At::current());

 private:
  static sim::Lane& lane();
};
static_assert(primitives::Executor<Exec>);

}  // namespace ep::fabric::sim
