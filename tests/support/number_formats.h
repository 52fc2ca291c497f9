// SPDX-License-Identifier: Apache-2.0
// Scalar conversions of the reducible types for the oracle, written from the formats' definitions.
#pragma once

#include <ep/dtype.h>

#include <cstddef>
#include <cstdint>

namespace ep::test {

/// A binary floating-point format: value = significand * 2^exponent with `significand_bits` bits,
/// the hidden one included.
struct NumberFormat {
  int significand_bits = 0;
  int min_exponent = 0;  ///< of the smallest normal number
  int max_exponent = 0;  ///< of the largest number
};

/// Precondition: is_reducible(dtype).
NumberFormat format_of(DType dtype);

/// The element as fp32, which holds every value of the three types exactly.
float widen(DType dtype, const std::byte* element);

/// Rounds to nearest even and stores; too large a value becomes infinite, a NaN becomes 0x7FFF
/// (bf16, fp16) or 0x7FFFFFFF (fp32).
void narrow(DType dtype, float value, std::byte* element);

/// Distance of neighbouring numbers of the type at |value|.
double ulp_at(DType dtype, double value);

/// True for every NaN of the type.
bool is_nan(DType dtype, const std::byte* element);

}  // namespace ep::test
