// SPDX-License-Identifier: Apache-2.0
// RowReducer (primitives/executor.h) whose terms come by bulk loads, as BulkRowReducer's do on a
// GPU.
#pragma once

#include "fabric/sim/group.h"
#include "fabric/sim/lane.h"
#include "primitives/row_reducer.h"

#include <cstddef>
#include <cstdint>
#include <source_location>

namespace ep::fabric::sim {

/// load() starts to fetch the terms of a sum, finish() awaits and adds them: each thread a part of
/// the row, stored with ordinary stores. Two sums may be under way, as in the ring of a GPU.
/// Without a copy unit as WarpRowReducer: finish() alone reads, with ordinary loads.
class RowReducer {
 public:
  using Sum = primitives::RowSum;
  using At = std::source_location;

  RowReducer(const Group& group, Lane& lane, const primitives::SumSpec& spec)
      : group_(group), lane_(&lane), spec_(spec) {}
  /// Also where a lane gave up: no load is under way when the memory of the slots goes.
  ~RowReducer();
  RowReducer(const RowReducer&) = delete;
  RowReducer& operator=(const RowReducer&) = delete;

  Sum begin(const Group& /*group*/) const { return {}; }
  void load(const Group& group, const Sum& sum, const At& at = At::current());
  void finish(const Group& group, const Sum& sum, const At& at = At::current());
  /// Its stores are ordinary ones: the group's sync() and a release order them.
  void drain(const Group& /*group*/) const {}
  void fence_acquired(const At& at = At::current()) const;

 private:
  void await_terms(std::uint64_t sum);
  void add_share(const Sum& sum, int first_slot, SiteId site) const;

  Group group_;
  Lane* lane_;
  primitives::SumSpec spec_;
  std::uint64_t num_loaded_ = 0;
  std::uint64_t num_finished_ = 0;
};

/// Bytes [begin, end) of a row that a thread of a group takes; in units of 16 bytes, else of 4,
/// else all of them belong to thread 0.
struct RowShare {
  std::int64_t begin;
  std::int64_t end;

  RowShare(const Group& group, std::int64_t bytes);
  std::int64_t size() const { return end - begin; }
};

}  // namespace ep::fabric::sim
