// SPDX-License-Identifier: Apache-2.0
// The figures of all ranks together.
#pragma once

#include "bench/ceilings.h"
#include "bench/measure.h"
#include "bench/model_compare.h"
#include "bench/stats.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ep::bench {

struct OpSummary {
  std::string name;  ///< dispatch, combine, moe, info
  DType dtype = DType::kBf16;
  std::optional<int> sms{};  ///< in force; of the rank with most. Empty: nothing ran
  std::optional<Stats> micros;
  /// Per rank, over the median: all rows, and those that cross from rank to rank.
  std::optional<double> logical_gbps;
  std::optional<double> moved_gbps;
  std::optional<double> fraction_of_memcpy;
  // On a GPU: bytes that cross from GPU to GPU with their scales, per rank over the median; their
  // share of what the links can do; time of the host for one call.
  std::optional<double> physical_gbps;
  std::optional<double> fraction_of_ceiling;
  std::optional<double> host_us;
  RowCheck check;
  std::optional<std::uint64_t> output_hash;
  // Between nodes: provider in force, and what an operation moves, bytes over all tokens.
  std::optional<std::string> provider;
  std::optional<double> net_bytes_per_token;
  std::optional<double> predicted_net_bytes_per_token;
  std::optional<TrafficComparison> traffic;
};

struct Summary {
  std::vector<OpSummary> ops;    ///< those of the command, in its order
  std::int64_t arena_bytes = 0;  ///< of the rank with most

  bool has_wrong_row() const;
};

/// Of the network between nodes; empty if there is one node.
std::optional<std::string> provider_of(const std::vector<RankResult>& ranks);

/// Precondition: results of all ranks, in rank order.
Summary summarise(const Options& options,
                  const std::vector<RankResult>& ranks,
                  const Ceilings& ceilings = {});

}  // namespace ep::bench
