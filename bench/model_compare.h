// SPDX-License-Identifier: Apache-2.0
// Compares what a network has counted with what a routing predicts. Pure.
#pragma once

#include "bench/model_traffic.h"

#include <ep/status.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ep::bench {

/// What one rank's network counted; a side that it does not count is not compared.
struct CountedTraffic {
  std::optional<NetTraffic<std::int64_t>> sent;
  std::optional<NetTraffic<std::int64_t>> received;
};

struct TrafficDifference {
  int rank = 0;
  const char* what = "";  ///< "bytes sent", "puts received", ...
  std::int64_t predicted = 0;
  std::int64_t counted = 0;
};

struct TrafficComparison {
  /// Sent by all ranks that count it.
  NetTraffic<std::int64_t> predicted;
  NetTraffic<std::int64_t> counted;
  std::vector<TrafficDifference> differences;  ///< by rank; empty if all are equal

  bool is_exact() const { return differences.empty(); }
  /// One line: both totals, and the first difference.
  std::string describe() const;
};

/// Element i is of rank i; of several operations, sums. Errors: kInvalidArgument if the numbers of
/// ranks differ.
Result<TrafficComparison> compare_traffic(std::span<const RankTraffic<std::int64_t>> predicted,
                                          std::span<const CountedTraffic> counted);

}  // namespace ep::bench
