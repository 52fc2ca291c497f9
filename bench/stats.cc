// SPDX-License-Identifier: Apache-2.0
// Sorts and interpolates.
#include "bench/stats.h"

#include <algorithm>
#include <cmath>

namespace ep::bench {

double percentile(std::span<const double> ascending, double fraction) {
  const double place = fraction * static_cast<double>(ascending.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(place));
  const std::size_t above = std::min(below + 1, ascending.size() - 1);
  return std::lerp(ascending[below], ascending[above], place - std::floor(place));
}

Stats stats_of(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return {.min = samples.front(),
          .median = percentile(samples, 0.5),
          .p10 = percentile(samples, 0.1),
          .p90 = percentile(samples, 0.9),
          .p99 = percentile(samples, 0.99)};
}

std::vector<double> slowest(const std::vector<std::vector<double>>& by_rank) {
  std::vector<double> worst = by_rank.front();
  for (const std::vector<double>& samples : by_rank) {
    for (std::size_t i = 0; i < worst.size(); ++i) worst[i] = std::max(worst[i], samples[i]);
  }
  return worst;
}

}  // namespace ep::bench
