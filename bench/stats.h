// SPDX-License-Identifier: Apache-2.0
// Order statistics of timed iterations.
#pragma once

#include <span>
#include <vector>

namespace ep::bench {

struct Stats {
  double min = 0;
  double median = 0;
  double p10 = 0;
  double p90 = 0;
  double p99 = 0;
};

/// Percentiles interpolate between neighbours. Precondition: not empty.
Stats stats_of(std::vector<double> samples);

/// `fraction` of the samples lie below it. Precondition: ascending, not empty.
double percentile(std::span<const double> ascending, double fraction);

/// The slowest rank counts: element i is the largest of the ranks' elements i. All have one size.
std::vector<double> slowest(const std::vector<std::vector<double>>& by_rank);

}  // namespace ep::bench
