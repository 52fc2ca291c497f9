// SPDX-License-Identifier: Apache-2.0
// Starts threads of the library: the user's signal handlers must not run on a thread that the user
// does not know.
#pragma once

#include <signal.h>

namespace ep::base {

/// While it lives the calling thread, and every thread that it starts, has all signals blocked.
class BlockedSignals {
 public:
  BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  ~BlockedSignals();

 private:
  sigset_t before_;
};

}  // namespace ep::base
