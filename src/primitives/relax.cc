// SPDX-License-Identifier: Apache-2.0
// Host back-off: spin, yield, park.
#include "primitives/relax.h"

#include <algorithm>
#include <sched.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ep::primitives {
namespace {

// A peer on another core answers within a microsecond: some tens of pauses of about 40 ns.
constexpr int kSpinPolls = 48;
// With more ranks than cores the peer needs this core: hand it over at once and often.
constexpr int kYieldPolls = 2'000;
// A peer that stays away for milliseconds is computing: sleeping costs it nothing and this wait at
// most this much.
constexpr long kMinParkNs = 20'000;
constexpr long kMaxParkNs = 500'000;

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

Yielder*& current_yielder() {
  thread_local Yielder* yielder = nullptr;
  return yielder;
}

void back_off(int polls) {
  if (polls < kSpinPolls) {
    pause();
  } else if (polls < kYieldPolls) {
    sched_yield();
  } else {
    const long park_ns = std::min(kMaxParkNs, kMinParkNs + (polls - kYieldPolls) * 1'000L);
    const timespec interval{0, park_ns};
    nanosleep(&interval, nullptr);
  }
}

void relax(int polls) {
  if (Yielder* yielder = current_yielder(); yielder != nullptr) {
    yielder->yield(polls);
  } else {
    back_off(polls);
  }
}

}  // namespace ep::primitives
