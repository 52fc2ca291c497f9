// SPDX-License-Identifier: Apache-2.0
// Runs several roles on one thread: each is a fiber, a role that waits hands the thread to the next
// one.
#pragma once

#include "primitives/relax.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace ep::fabric {

/// Belongs to one thread at a time. Stacks are kept between runs.
class FiberSet final : public primitives::Yielder {
 public:
  using Task = std::function<void()>;

  FiberSet();
  ~FiberSet() override;
  FiberSet(const FiberSet&) = delete;
  FiberSet& operator=(const FiberSet&) = delete;

  /// Runs every task to its end, interleaved at their waits. Tasks must not throw.
  void run(std::span<const Task> tasks);

  /// From inside a task: lets the others run; when none of them makes progress, backs off.
  void yield(int polls) override;

 private:
  struct Fiber;

  void start(Fiber& fiber, const Task& task);
  /// Runs the fiber until it waits or ends; true if it made progress since its last turn.
  bool resume(Fiber& fiber);

  std::vector<std::unique_ptr<Fiber>> fibers_;
  Fiber* running_ = nullptr;
  int num_live_ = 0;
  void* thread_fiber_ = nullptr;  // ThreadSanitizer's name of the thread's own stack
};

}  // namespace ep::fabric
