// SPDX-License-Identifier: Apache-2.0
// Budgets from measured curves of time over SMs; the table is sm_table.h.
#pragma once

#include <ep/sm_budget.h>

#include <cstdint>
#include <span>

namespace ep::core {

/// One curve: the shape that was measured, and the least SMs that come close to its best time.
struct MeasuredBudget {
  Movement movement;
  Layout layout;
  std::int64_t row_bytes;
  std::int64_t num_rows;  ///< as OpShape::num_rows
  int num_sms;
};

/// Of the curve of the same movement and layout whose rows and bytes per row are nearest, both by
/// ratio; `otherwise` where there is none.
int nearest_budget(std::span<const MeasuredBudget> curves, const OpShape& shape, int otherwise);

/// From the table.
int measured_budget(const OpShape& shape);
/// No shape has more.
int largest_measured_budget();

}  // namespace ep::core
