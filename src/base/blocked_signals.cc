// SPDX-License-Identifier: Apache-2.0
// Signals of threads that the library starts.
#include "base/blocked_signals.h"

#include "base/check.h"

namespace ep::base {

BlockedSignals::BlockedSignals() {
  sigset_t all;
  ::sigfillset(&all);
  EP_CHECK(::pthread_sigmask(SIG_SETMASK, &all, &before_) == 0);
}

BlockedSignals::~BlockedSignals() {
  EP_CHECK(::pthread_sigmask(SIG_SETMASK, &before_, nullptr) == 0);
}

}  // namespace ep::base
