// SPDX-License-Identifier: Apache-2.0
// What a protocol role needs from the machine it runs on. Roles are templates over an Executor;
// what differs between machines is only here: how memory order is spelled, how rows are copied and
// added, how time is read.
#pragma once

#include "primitives/coop.h"

#include <cstddef>
#include <cstdint>

namespace ep::primitives {

template <class E>
concept Executor = requires(const void* table, std::int64_t index, int spins) {
  typename E::Memory;   // memory.h
  typename E::Group;    // a Coop: what one lane of a role is made of
  typename E::RowPipe;  // row_pipe.h: one load, any number of stores per row
  // Sums of rows: begin() a RowReducer::Sum, add its terms, load() it, finish() it. One further sum
  // may be loaded before: its rows are on their way while this one is worked on.
  typename E::RowReducer;
  { E::peer_segment(table, index) } -> std::same_as<std::byte*>;
  { E::is_gone(table, 0) } -> std::same_as<bool>;
  { E::clock_ns() } -> std::same_as<std::uint64_t>;
  E::relax(spins);
};

/// Which lane of a role this is: lanes of all channels share the role's tickets.
struct Lane {
  int channel = 0;
  /// Memory of this lane alone, at least as large as the operation's plan says, uninitialised.
  std::byte* scratch = nullptr;
  /// Of a lane that moves rows, where the executor stages them: the pipe's own memory and the bytes
  /// of each stage.
  std::byte* stages = nullptr;
  std::int64_t stage_bytes = 0;
};

}  // namespace ep::primitives
