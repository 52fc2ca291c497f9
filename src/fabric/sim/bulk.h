// SPDX-License-Identifier: Apache-2.0
// BulkEngine (primitives/row_pipe.h) over a lane's copy unit, and the real RowPipe over that.
#pragma once

#include "fabric/sim/group.h"
#include "fabric/sim/lane.h"
#include "primitives/row_pipe.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <source_location>

namespace ep::fabric::sim {

/// As TmaBulk: thread 0 starts every copy, the others only wait for loads. Each order can be left
/// out at the place where a role called the pipe. Without a copy unit as VectorBulk: every thread
/// copies its share with ordinary accesses when it comes to the store.
class Bulk {
 public:
  static constexpr int kStages = 4;

  Bulk(const Group& group, Lane& lane) : group_(group), lane_(&lane) {}

  void load(int stage, const primitives::RowParts& parts);
  void wait_loaded(int stage);
  void store(std::byte* dst, int stage, primitives::StageSlice slice);
  void commit();
  template <int kPending>
  void wait_read() {
    wait_read(kPending);
  }
  template <int kPending>
  void wait_landed() {
    wait_landed(kPending);
  }
  void wait_all();
  void fence();
  void fence_acquired();

 private:
  void wait_read(int num_pending);
  void wait_landed(int num_pending);
  void copy_share(std::byte* dst, const std::byte* src, std::int64_t bytes) const;
  /// This thread asks the copy unit to keep the order, unless it is left out here.
  bool has_order(Order order) const;

  Group group_;
  Lane* lane_;
  std::array<std::uint64_t, kStages> num_loads_{};     // of the launch
  std::array<primitives::RowParts, kStages> parts_{};  // without a copy unit
};
static_assert(primitives::BulkEngine<Bulk>);

/// The RowPipe of all executors; only notes who calls it.
class RowPipe : public primitives::RowPipe<Bulk> {
 public:
  using Base = primitives::RowPipe<Bulk>;
  using At = std::source_location;

  RowPipe(const Group& group, Lane& lane) : Base(Bulk(group, lane)) {}
  /// What is left to wait for when a lane gives up is no mutation.
  ~RowPipe() { note_caller(0); }

  void load(std::int64_t row, const primitives::RowParts& parts, const At& at = At::current()) {
    called_at(at).load(row, parts);
  }
  std::int64_t wait_front(const At& at = At::current()) { return called_at(at).wait_front(); }
  void store(std::byte* dst, primitives::StageSlice slice, const At& at = At::current()) {
    called_at(at).store(dst, slice);
  }
  void retire(const At& at = At::current()) { called_at(at).retire(); }
  template <int kNewest>
  void await_landed(const At& at = At::current()) {
    called_at(at).template await_landed<kNewest>();
  }
  void drain(const At& at = At::current()) { called_at(at).drain(); }
  void fence_acquired(const At& at = At::current()) { called_at(at).fence_acquired(); }

 private:
  Base& called_at(const At& at);
  static void note_caller(SiteId site);
};

}  // namespace ep::fabric::sim
