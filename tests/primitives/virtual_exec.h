// SPDX-License-Identifier: Apache-2.0
// A host executor with a clock of its own: deadlines pass at once, and other ranks act between two
// polls.
#pragma once

#include "primitives/host_exec.h"

#include <cstdint>
#include <functional>
#include <utility>

namespace ep::test {

/// What the polls of one thread see.
struct VirtualMachine {
  static constexpr std::uint64_t kNsPerPoll = 1'000;

  std::uint64_t now_ns = 0;
  int num_polls = 0;                        ///< of all waits together
  std::function<void(int poll)> on_poll{};  ///< what the other ranks do; polls count from 1
};

struct VirtualExec : primitives::HostExec {
  static VirtualMachine& machine() {
    thread_local VirtualMachine machine;
    return machine;
  }
  static std::uint64_t clock_ns() { return machine().now_ns; }
  static void relax(int /*polls*/) {
    machine().now_ns += VirtualMachine::kNsPerPoll;
    ++machine().num_polls;
    if (machine().on_poll) machine().on_poll(machine().num_polls);
  }
  /// Starts again, with other ranks that act as `on_poll` says.
  static void restart(std::function<void(int poll)> on_poll = {}) {
    machine() = {.on_poll = std::move(on_poll)};
  }
};
static_assert(primitives::Executor<VirtualExec>);

}  // namespace ep::test
