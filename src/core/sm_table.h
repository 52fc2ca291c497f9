// SPDX-License-Identifier: Apache-2.0
// Measured budgets by shape, written by tools/sm_table.py from bench/results/h200x2.jsonl.
//
// 2 x NVIDIA H200, driver 580.159.04, CUDA 13.0;
// 2026-11-30; commits 701e1247813c.
#pragma once

#include "core/sm_curve.h"

namespace ep::core {

/// The least SMs within 4 % of the best of each curve, 16 at most.
inline constexpr MeasuredBudget kMeasuredBudgets[] = {
    {Movement::kCombine, Layout::kExpertMajor, 14336, 32768, 16},
    {Movement::kCombine, Layout::kFlat, 14336, 8192, 10},
    {Movement::kDispatch, Layout::kExpertMajor, 14336, 32768, 16},
    {Movement::kDispatch, Layout::kFlat, 7168, 8192, 14},
    {Movement::kDispatch, Layout::kFlat, 14336, 8192, 14},
};

}  // namespace ep::core
