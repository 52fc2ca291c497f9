// SPDX-License-Identifier: Apache-2.0
// Strong signals by counting the puts of each epoch, in the smallest form that works, and what can
// be got wrong in it.
#pragma once

#include "tests/fabric/chaos/duo.h"

namespace ep::test {

/// All true: the protocol is right on any network.
struct StrongRules {
  bool waits_for_puts = true;   ///< false: a strong signal is applied when its record is here
  bool counts_by_epoch = true;  ///< false: arrivals of all epochs against one running total
  bool has_whole_ack = true;    ///< false: an acknowledgement is a cursor modulo twice the window
  bool keeps_half_free = true;  ///< false: as many epochs may be open as the ring has cells
};

/// 40 epochs of 0 to 3 puts each through a ring of 4. Adds what chaos did to `counts`.
Violation run_strong(const fabric::ChaosConfig& config,
                     const StrongRules& rules,
                     fabric::ChaosCounts& counts);

}  // namespace ep::test
