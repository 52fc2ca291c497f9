// SPDX-License-Identifier: Apache-2.0
// What a host role does between two polls: lets others run.
#pragma once

namespace ep::primitives {

/// Fibers of one thread install a Yielder, so that a waiting role hands the thread to its
/// neighbours.
class Yielder {
 public:
  virtual ~Yielder() = default;
  /// Called by a role that waits, with the number of its polls so far.
  virtual void yield(int polls) = 0;
};

/// The yielder of the calling thread, null for none.
Yielder*& current_yielder();

/// Spins, then yields the processor, then parks for growing intervals. `polls` counts polls without
/// success.
void back_off(int polls);

/// Between two polls of a wait: yields to the fibers of this thread if there are any, else backs
/// off.
void relax(int polls);

}  // namespace ep::primitives
