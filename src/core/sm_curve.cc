// SPDX-License-Identifier: Apache-2.0
// Looks up measured budgets.
#include "core/sm_curve.h"

#include "core/sm_table.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace ep::core {
namespace {

/// Movements and layouts without a curve: an SM moves about 45 GB/s whatever the method, and this
/// many fill the links in either direction (docs/tuning.md).
constexpr int kUnmeasuredSms = 16;

double log_ratio(std::int64_t a, std::int64_t b) {
  const auto log_of = [](std::int64_t value) {
    return std::log2(static_cast<double>(std::max<std::int64_t>(value, 1)));
  };
  return std::abs(log_of(a) - log_of(b));
}

}  // namespace

int nearest_budget(std::span<const MeasuredBudget> curves, const OpShape& shape, int otherwise) {
  std::optional<double> least;
  int num_sms = otherwise;
  for (const MeasuredBudget& curve : curves) {
    if (curve.movement != shape.movement || curve.layout != shape.layout) continue;
    const double distance = log_ratio(curve.row_bytes, shape.hidden_bytes) +
                            log_ratio(curve.num_rows, shape.num_rows());
    if (least && *least <= distance) continue;
    least = distance;
    num_sms = curve.num_sms;
  }
  return num_sms;
}

int measured_budget(const OpShape& shape) {
  return nearest_budget(kMeasuredBudgets, shape, kUnmeasuredSms);
}

int largest_measured_budget() {
  int largest = kUnmeasuredSms;
  for (const MeasuredBudget& curve : kMeasuredBudgets) largest = std::max(largest, curve.num_sms);
  return largest;
}

}  // namespace ep::core
