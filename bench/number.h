// SPDX-License-Identifier: Apache-2.0
// Conversions between the element types and fp32/fp64, independent of the library's own.
#pragma once

#include "bench/elem_math.h"

#include <ep/dtype.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace ep::bench {

/// Block of elements that share one fp32 scale.
inline constexpr std::int64_t kScaleBlock = 128;

constexpr bool is_quantised(DType dtype) {
  return dtype == DType::kFp8E4M3 || dtype == DType::kInt8;
}

constexpr std::int64_t num_scales_of(DType dtype, std::int64_t hidden) {
  return is_quantised(dtype) ? (hidden + kScaleBlock - 1) / kScaleBlock : 0;
}

/// What experts return for rows of `dtype`: quantised rows come back as bf16.
constexpr DType expert_dtype_of(DType dtype) { return is_quantised(dtype) ? DType::kBf16 : dtype; }

/// One row as it travels. `scales` is empty unless the type is quantised.
struct RowView {
  DType dtype = DType::kBf16;
  std::span<const std::byte> bytes;
  std::span<const float> scales;
};

/// The elements, times their block's scale; exact for every unscaled type. `out` has one float per
/// element.
void widen_row(const RowView& row, std::span<float> out);

/// Rounds to nearest even, without scales; values of fp8 and int8 must lie in the range of the
/// type.
void narrow_row(std::span<const float> values, DType dtype, std::span<std::byte> out);

/// Per block: scale = largest magnitude / largest number of the type, elements rounded to nearest
/// even. An all-zero block has scale 1. `scales` has num_scales_of() entries.
void quantise_row(std::span<const float> values,
                  DType dtype,
                  std::span<std::byte> out,
                  std::span<float> scales);

/// One element without its scale.
double element_value(DType dtype, const std::byte* element);

/// The number of the type nearest to `value`, ties to even. Precondition: is_reducible(dtype).
double round_to(DType dtype, double value);

}  // namespace ep::bench
