// SPDX-License-Identifier: Apache-2.0
// An alpha-beta estimate of the time of an operation from what its ranks move.
#pragma once

#include "bench/link_costs.h"
#include "bench/model_traffic.h"

#include <ep/sm_budget.h>

#include <cstdint>
#include <span>

namespace ep::bench {

/// The term that an estimate is made of most.
enum class Bound : std::uint8_t { kNetBytes, kNetMessages, kLsaBytes, kLatency };
const char* name_of(Bound bound);

/// Rows stream through all stages at once, so the slowest stage of the slowest rank counts; before
/// it come what is paid once: the exchange of announcements and the way of the first chunk.
struct TimeEstimate {
  double net_bytes_us = 0;     ///< of the NIC and direction that takes longest
  double net_messages_us = 0;  ///< of the same
  double lsa_us = 0;           ///< of the rank and direction that takes longest
  double latency_us = 0;
  double net_us() const { return net_bytes_us + net_messages_us; }
  double total_us() const;
  Bound bound() const;
};

/// `chunk_bytes`: of the first put, which nothing overlaps. Pure.
TimeEstimate estimate_time(std::span<const RankTraffic<std::int64_t>> ranks,
                           const LinkCosts& costs,
                           Movement movement,
                           double chunk_bytes);

}  // namespace ep::bench
