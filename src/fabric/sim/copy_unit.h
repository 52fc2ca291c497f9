// SPDX-License-Identifier: Apache-2.0
// The bulk copy unit of a lane: another agent than the lane's threads. It reads and writes when the
// scheduler lets it, and nobody knows more of it than they waited for.
#pragma once

#include "fabric/sim/machine.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ep::fabric::sim {

/// What primitives/bulk_tma.cuh asks of the hardware. The thread that starts a copy is thread 0.
///
/// - Loads come in *lots* that complete together; lot `n + 1` of a kind begins after `n` was
///   awaited. Each kind of lot is an agent, and a lot is a moment of it.
/// - Stores come in groups, closed by commit(); all stores of the lane are one agent, and a group
///   is a moment of it.
/// - A copy is ordered behind what its thread had seen at its last proxy fence (Fiber::async_view),
///   and behind the copies that were awaited before.
/// - What has landed is known to the copy unit; a release covers it only behind fence().
/// - A slot must not be loaded while stores still read it, and not stored before it is loaded. That
///   is judged by what was awaited, not by what the unit happened to have done.
class CopyUnit final : public Device {
 public:
  CopyUnit(Machine& machine, int rank, std::string name);

  struct Piece {
    const std::byte* src;
    std::int64_t bytes;
  };
  /// Starts to load a row and what follows it into a slot; opens a new lot of the kind unless
  /// `joins` the open one. Returns the lot.
  std::uint64_t load(
      int slot, int kind, bool joins, const Piece& row, const Piece& tail, SiteId site);
  /// The lot before the first of this launch.
  std::uint64_t first_lot(int kind) { return kind_of(kind).before_launch; }
  /// Any thread of the lane. Until the lot is complete; the loads then precede what follows.
  void await_loaded(int kind, std::uint64_t lot);
  void store(std::byte* dst, int slot, std::int64_t offset, std::int64_t bytes, SiteId site);
  void commit() { ++open_group_; }
  /// All groups but the newest `num_pending` closed ones.
  void await_read(int num_pending);
  void await_landed(int num_pending);
  /// What was awaited to land precedes the next release of the thread.
  void fence();
  /// What the thread has seen precedes the copies that it starts from now on.
  void fence_acquired();
  /// A loaded row, for threads that read it themselves. Precondition: its lot was awaited.
  const std::byte* slot(int index) const;

  /// The lane is about to be launched.
  void begin();
  /// The lane has ended: nothing may be under way. Its launch makes all of it visible.
  void end();

  bool is_busy() const override { return !copies_.empty(); }
  void act(Random& random) override;

 private:
  struct Slot {
    std::vector<std::byte> bytes{};
    int kind = 0;
    std::uint64_t lot = 0;
    std::uint64_t read_by = 0;  // the newest group that has stores from here
  };
  struct Kind {
    AgentId agent;
    std::uint64_t newest = 0;   // lot that was opened last
    std::uint64_t awaited = 0;  // by thread 0
    std::uint64_t before_launch = 0;
  };
  struct Copy {
    bool is_store = false;
    bool has_read = false;  // a store: its slot
    int slot = 0;
    int kind = 0;              // of a load
    std::uint64_t moment = 0;  // lot or group
    std::int64_t offset = 0;   // in the slot
    Piece src{};               // of a load
    std::byte* dst = nullptr;  // of a store
    std::vector<std::byte> bytes{};
    std::shared_ptr<const VectorClock> view{};
    SiteId site = 0;
  };

  Fiber& thread() { return machine_.running(); }
  Kind& kind_of(int index);
  Slot& slot_of(int index);
  void add_load(int slot, std::int64_t offset, const Piece& piece, SiteId site);
  bool is_complete(int kind, std::uint64_t lot) const;
  template <class Done>
  bool are_groups(std::uint64_t last, Done done) const;
  void perform(Copy& copy);

  Machine& machine_;
  int rank_;
  std::string name_;
  std::vector<Kind> kinds_;
  std::vector<Slot> slots_;
  AgentId store_agent_;
  std::uint64_t open_group_ = 1;
  std::uint64_t read_ = 0;    // groups up to this one were awaited to have read
  std::uint64_t landed_ = 0;  // ... to have landed
  std::vector<Copy> copies_;  // under way
};

}  // namespace ep::fabric::sim
