// SPDX-License-Identifier: Apache-2.0
// Groups of fibers that run a step together (primitives/coop.h): a warp with as few threads as show
// every mistake.
#pragma once

#include "fabric/sim/site.h"
#include "fabric/sim/vector_clock.h"

#include <array>
#include <cstdint>
#include <source_location>

namespace ep::fabric::sim {

inline constexpr int kMaxGroupThreads = 4;

/// Where the threads of a lane meet. Two rounds suffice: a thread comes to round n + 2 only after
/// all have come to n + 1, and so have left n.
class Rendezvous {
 public:
  struct Round {
    SiteId site = 0;
    int num_here = 0;
    VectorClock view{};  ///< of all who are here
    std::array<std::uint64_t, kMaxGroupThreads> values{};
  };

  explicit Rendezvous(int size) : size_(size) {}
  int size() const { return size_; }

  /// The calling fiber's next round: returns when all are here. With `orders`, each then sees what
  /// all saw before.
  const Round& meet(std::uint64_t value, bool orders, SiteId site);

 private:
  int size_;
  std::array<Round, 2> rounds_{};
  std::array<std::uint64_t, kMaxGroupThreads> next_{};  // of each thread: its next round
  std::uint64_t num_complete_ = 0;
};

/// WarpGroup (primitives/coop.cuh) over fibers: sync() orders memory; broadcast, broadcast_last and
/// all() exchange a value, which orders nothing, and sync(); inclusive_sum() only exchanges.
class Group {
 public:
  using At = std::source_location;

  Group(Rendezvous& rendezvous, int thread_rank)
      : rendezvous_(&rendezvous), thread_rank_(thread_rank) {}

  int thread_rank() const { return thread_rank_; }
  int size() const { return rendezvous_->size(); }
  bool is_leader() const { return thread_rank_ == 0; }

  void sync(const At& at = At::current()) const;
  std::uint64_t broadcast(std::uint64_t value, const At& at = At::current()) const;
  std::int64_t broadcast_last(std::int64_t value, const At& at = At::current()) const;
  bool all(bool is_true, const At& at = At::current()) const;
  std::int64_t inclusive_sum(std::int64_t value, const At& at = At::current()) const;
  /// The last thread's value, which orders nothing: a shuffle.
  std::int64_t last_of(std::int64_t value, const At& at = At::current()) const;
  /// For executors: a sync() of their own, which is part of the model.
  void join(const At& at = At::current()) const;

 private:
  const Rendezvous::Round& exchange(std::uint64_t value, const At& at, const At& self) const;

  Rendezvous* rendezvous_;
  int thread_rank_;
};

}  // namespace ep::fabric::sim
