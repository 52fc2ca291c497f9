// SPDX-License-Identifier: Apache-2.0
// What messages and bytes cost in the model of ep-bench.
#pragma once

#include <ep/sm_budget.h>

namespace ep::bench {

/// Every rank has a NIC of its own. Where the defaults come from: docs/scaling.md.
struct LinkCosts {
  double message_us = 1.0;      ///< alpha: of a NIC, per message and direction
  double net_gbps = 50;         ///< beta: of a NIC, per direction
  double net_latency_us = 5.0;  ///< from a put to its signal at the peer
  double push_gbps = 365;       ///< what a rank stores to its node
  double pull_gbps = 335;       ///< what a rank loads from its node
  double flag_us = 1.2;         ///< release to acquire between ranks of a node
  double fixed_us = 30;         ///< launch, counting, exchange and arrivals inside a node

  double lsa_gbps(Movement movement) const {
    return movement == Movement::kDispatch ? push_gbps : pull_gbps;
  }
};

}  // namespace ep::bench
