// SPDX-License-Identifier: Apache-2.0
// Fibers on Boost.Context, annotated for AddressSanitizer and ThreadSanitizer.
#include "fabric/host/fibers.h"

#include "fabric/host/fiber_stack.h"

#include <boost/context/fiber.hpp>

#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace ep::fabric {
namespace {

// A sanitizer is told before each switch where execution goes, and after it where it arrived.
#if defined(__SANITIZE_THREAD__)
void* this_sanitizer_fiber() { return __tsan_get_current_fiber(); }
void* make_sanitizer_fiber() { return __tsan_create_fiber(0); }
void destroy_sanitizer_fiber(void* fiber) { __tsan_destroy_fiber(fiber); }
// A switch orders: what races between roles shows between channels, which are threads.
void announce_switch(void* fiber) { __tsan_switch_to_fiber(fiber, 0); }
#else
void* this_sanitizer_fiber() { return nullptr; }
void* make_sanitizer_fiber() { return nullptr; }
void destroy_sanitizer_fiber(void* /*fiber*/) {}
[[maybe_unused]] void announce_switch(void* /*fiber*/) {}
#endif

}  // namespace

struct FiberSet::Fiber {
  FiberStack stack;
  boost::context::fiber context;    // where the fiber goes on
  boost::context::fiber scheduler;  // where the thread goes on
  void* sanitizer_fiber = nullptr;
  bool is_live = false;
  bool has_progress = false;
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
  void* scheduler_fake_stack = nullptr;
  const void* scheduler_bottom = nullptr;
  std::size_t scheduler_bytes = 0;
#endif

  /// In the thread, around a switch into the fiber.
  void before_resume();
  void after_resume();
  /// In the fiber, around a switch back to the thread.
  void before_suspend(void* thread_fiber, bool is_last);
  void after_suspend();
};

#if defined(__SANITIZE_ADDRESS__)
void FiberSet::Fiber::before_resume() {
  __sanitizer_start_switch_fiber(&scheduler_fake_stack, stack.bottom(), stack.bytes());
}
void FiberSet::Fiber::after_resume() {
  __sanitizer_finish_switch_fiber(scheduler_fake_stack, nullptr, nullptr);
}
void FiberSet::Fiber::before_suspend(void* /*thread_fiber*/, bool is_last) {
  if (is_last) fake_stack = nullptr;  // the next task on this stack begins without one
  __sanitizer_start_switch_fiber(is_last ? nullptr : &fake_stack, scheduler_bottom,
                                 scheduler_bytes);
}
void FiberSet::Fiber::after_suspend() {
  __sanitizer_finish_switch_fiber(fake_stack, &scheduler_bottom, &scheduler_bytes);
}
#else
void FiberSet::Fiber::before_resume() { announce_switch(sanitizer_fiber); }
void FiberSet::Fiber::after_resume() {}
void FiberSet::Fiber::before_suspend(void* thread_fiber, bool /*is_last*/) {
  announce_switch(thread_fiber);
}
void FiberSet::Fiber::after_suspend() {}
#endif

FiberSet::FiberSet() = default;

FiberSet::~FiberSet() {
  for (const auto& fiber : fibers_) destroy_sanitizer_fiber(fiber->sanitizer_fiber);
}

void FiberSet::start(Fiber& fiber, const Task& task) {
  if (fiber.sanitizer_fiber == nullptr) fiber.sanitizer_fiber = make_sanitizer_fiber();
  fiber.is_live = true;
  ++num_live_;
  fiber.context = fiber.stack.make_fiber([this, &fiber, &task](boost::context::fiber&& scheduler) {
    fiber.scheduler = std::move(scheduler);
    fiber.after_suspend();
    task();
    fiber.is_live = false;
    fiber.has_progress = true;
    --num_live_;
    fiber.before_suspend(thread_fiber_, true);
    return std::move(fiber.scheduler);
  });
}

bool FiberSet::resume(Fiber& fiber) {
  running_ = &fiber;
  fiber.has_progress = false;
  fiber.before_resume();
  fiber.context = std::move(fiber.context).resume();
  fiber.after_resume();
  return fiber.has_progress;
}

void FiberSet::run(std::span<const Task> tasks) {
  thread_fiber_ = this_sanitizer_fiber();
  while (fibers_.size() < tasks.size()) fibers_.push_back(std::make_unique<Fiber>());
  primitives::Yielder* const outer = std::exchange(primitives::current_yielder(), this);
  for (std::size_t i = 0; i < tasks.size(); ++i) start(*fibers_[i], tasks[i]);
  int num_idle_rounds = 0;
  while (num_live_ > 0) {
    bool has_progress = false;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      if (fibers_[i]->is_live && resume(*fibers_[i])) has_progress = true;
    }
    num_idle_rounds = has_progress ? 0 : num_idle_rounds + 1;
    if (!has_progress) primitives::back_off(num_idle_rounds);
  }
  primitives::current_yielder() = outer;
}

void FiberSet::yield(int polls) {
  if (num_live_ == 1) {
    primitives::back_off(polls);
    return;
  }
  Fiber& fiber = *running_;
  fiber.has_progress = polls == 1;  // the first poll of a wait: work was done since the last one
  fiber.before_suspend(thread_fiber_, false);
  fiber.scheduler = std::move(fiber.scheduler).resume();
  fiber.after_suspend();
}

}  // namespace ep::fabric
