// SPDX-License-Identifier: Apache-2.0
// The slowest stage of the slowest rank, and what cannot overlap with it.
#include "bench/model_time.h"

#include <algorithm>

namespace ep::bench {
namespace {

constexpr double kBytesPerMicroOfGbps = 1e3;

double micros_of(double bytes, double gbps) { return bytes / (gbps * kBytesPerMicroOfGbps); }

struct NicTime {
  double bytes_us = 0;
  double messages_us = 0;
  double us() const { return bytes_us + messages_us; }
};

NicTime nic_time(const NetTraffic<std::int64_t>& traffic, const LinkCosts& costs) {
  return {.bytes_us = micros_of(static_cast<double>(traffic.bytes), costs.net_gbps),
          .messages_us = static_cast<double>(traffic.messages()) * costs.message_us};
}

NicTime slower_direction(const Flow<std::int64_t>& flow, const LinkCosts& costs) {
  const NicTime sending = nic_time(flow.sent, costs);
  const NicTime receiving = nic_time(flow.received, costs);
  return receiving.us() > sending.us() ? receiving : sending;
}

double lsa_time(const Flow<std::int64_t>& flow, double gbps) {
  const std::int64_t bytes = std::max(flow.lsa_sent_bytes, flow.lsa_received_bytes);
  return micros_of(static_cast<double>(bytes), gbps);
}

}  // namespace

const char* name_of(Bound bound) {
  switch (bound) {
    case Bound::kNetBytes:
      return "net_bytes";
    case Bound::kNetMessages:
      return "net_messages";
    case Bound::kLsaBytes:
      return "lsa_bytes";
    case Bound::kLatency:
      return "latency";
  }
  return "?";
}

double TimeEstimate::total_us() const { return latency_us + std::max(net_us(), lsa_us); }

Bound TimeEstimate::bound() const {
  if (latency_us >= std::max(net_us(), lsa_us)) return Bound::kLatency;
  if (lsa_us >= net_us()) return Bound::kLsaBytes;
  return net_bytes_us >= net_messages_us ? Bound::kNetBytes : Bound::kNetMessages;
}

TimeEstimate estimate_time(std::span<const RankTraffic<std::int64_t>> ranks,
                           const LinkCosts& costs,
                           Movement movement,
                           double chunk_bytes) {
  TimeEstimate time = {.latency_us = costs.fixed_us};
  double announcing_us = 0;
  bool has_net = false;
  for (const RankTraffic<std::int64_t>& rank : ranks) {
    const NicTime nic = slower_direction(rank.rows, costs);
    if (nic.us() > time.net_us()) {
      time.net_bytes_us = nic.bytes_us;
      time.net_messages_us = nic.messages_us;
    }
    time.lsa_us = std::max(time.lsa_us, lsa_time(rank.rows, costs.lsa_gbps(movement)));
    announcing_us = std::max(announcing_us, slower_direction(rank.announcements, costs).us());
    has_net = has_net || rank.announcements.sent.puts > 0;
  }
  // fixed_us has the exchange inside a node; over the network it takes a put and its relay.
  if (has_net) time.latency_us += announcing_us + costs.net_latency_us + costs.flag_us;
  if (time.net_us() > 0) {
    time.latency_us +=
        micros_of(chunk_bytes, costs.net_gbps) + costs.net_latency_us + costs.flag_us;
  }
  return time;
}

}  // namespace ep::bench
