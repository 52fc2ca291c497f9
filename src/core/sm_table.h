// SPDX-License-Identifier: Apache-2.0
// Measured budgets by shape, written by tools/sm_table.py from bench/results/h200x2.jsonl.
//
// 2 x NVIDIA H200, driver 580.159.04, CUDA 13.0;
// 2026-11-30; commits bf8b26aa44be, c52b0f06604a.
#pragma once

#include "core/sm_curve.h"

namespace ep::core {

/// The least SMs within 4 % of the best of each curve.
inline constexpr MeasuredBudget kMeasuredBudgets[] = {
    {Movement::kCombine, Layout::kFlat, 14336, 8192, 12},
    {Movement::kDispatch, Layout::kFlat, 7168, 8192, 16},
    {Movement::kDispatch, Layout::kFlat, 14336, 8192, 14},
};

}  // namespace ep::core
