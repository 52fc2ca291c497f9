// SPDX-License-Identifier: Apache-2.0
// Ranges of the settings.
#include "fabric/net/net_config.h"

#include "base/check.h"
#include "fabric/net/immediate.h"

#include <bit>
#include <string>
#include <string_view>

namespace ep::fabric {
namespace {

constexpr std::int64_t kMaxSlots = std::int64_t{1} << 30;
constexpr std::int64_t kMaxWindowOps = 1 << 16;
constexpr std::int64_t kMinRing = 2;
constexpr std::int64_t kMinArrivalWindow = 4;
constexpr std::int64_t kMaxArrivalWindow = 1 << 20;

struct Range {
  std::int64_t min;
  std::int64_t max;
};

Status check(std::string_view field, std::int64_t value, Range range) {
  if (value >= range.min && value <= range.max) return {};
  return Status(Errc::kInvalidArgument,
                "NetConfig::" + std::string(field) + " = " + std::to_string(value) + ", not in [" +
                    std::to_string(range.min) + ", " + std::to_string(range.max) + "]");
}

Status check_ring(std::string_view field, std::int64_t value, Range range) {
  EP_TRY(check(field, value, range));
  if (std::has_single_bit(static_cast<std::uint64_t>(value))) return {};
  return Status(Errc::kInvalidArgument, "NetConfig::" + std::string(field) + " = " +
                                            std::to_string(value) + " is no power of two");
}

}  // namespace

Status validate(const NetConfig& config) {
  constexpr std::int64_t kMaxBytes = std::int64_t{1} << 50;
  EP_TRY(check("num_contexts", config.num_contexts, {1, kMaxNetContexts}));
  EP_TRY(check("num_signals", config.num_signals, {1, kMaxSlots}));
  EP_TRY(check("num_counters", config.num_counters, {0, kMaxSlots}));
  EP_TRY(check_ring("window_ops", config.window_ops, {1, kMaxWindowOps}));
  EP_TRY(check("window_bytes", config.window_bytes, {1, kMaxBytes}));
  EP_TRY(check("arrival_window", config.arrival_window, {kMinArrivalWindow, kMaxArrivalWindow}));
  EP_TRY(check_ring("epoch_ring", config.epoch_ring, {kMinRing, kNumEpochIds}));
  EP_TRY(check_ring("part_ring", config.part_ring, {kMinRing, kNumPayloads / 2}));
  EP_TRY(check("heartbeat", config.heartbeat.count(), {1, kMaxSlots}));
  EP_TRY(check("suspect_after", config.suspect_after.count(), {1, kMaxSlots}));
  EP_TRY(check("dead_after", config.dead_after.count(), {1, kMaxSlots}));
  return {};
}

NetCounters& NetCounters::operator+=(const NetCounters& other) {
  puts += other.puts;
  put_bytes += other.put_bytes;
  gets += other.gets;
  get_bytes += other.get_bytes;
  signals += other.signals;
  messages += other.messages;
  arrivals += other.arrivals;
  stale += other.stale;
  return *this;
}

}  // namespace ep::fabric
