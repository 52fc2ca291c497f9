// SPDX-License-Identifier: Apache-2.0
// Scalar conversions between fp32 and the narrow float formats, on raw bits, as a GPU's cvt
// instructions do them.
#pragma once

#include "base/macros.h"

#include <cstdint>

/// A value in a narrow format is its bit pattern, std::uint16_t or std::uint8_t. `x_from_float`
/// rounds to nearest, ties to even. What differs between formats, and the PTX that gives those
/// bits:
///
///   | format | too large is         | NaN is | the same as                 | NaN widens to |
///   |--------|----------------------|--------|-----------------------------|---------------|
///   | bf16   | infinity             | 0x7FFF | cvt.rn.bf16.f32             | bits << 16    |
///   | fp16   | infinity             | 0x7FFF | cvt.rn.f16.f32              | 0x7FFFFFFF    |
///   | e4m3   | 448, infinity too    | 0x7F   | cvt.rn.satfinite.e4m3x2.f32 | 0x7FFFFFFF    |
///   | e5m2   | 57,344, infinity too | 0x7F   | cvt.rn.satfinite.e5m2x2.f32 | 0x7FFFFFFF    |
///
/// The sign of a NaN is dropped. Compared with an H200 over all 2^32 inputs: no difference. The
/// processor must not flush subnormals (its default).
namespace ep::layout {

inline constexpr std::uint32_t kFloatSignBit = 0x80000000U;
inline constexpr std::uint32_t kFloatInfinity = 0x7F800000U;
inline constexpr std::uint32_t kFloatNan =
    0x7FFFFFFFU;  ///< what GPU arithmetic returns for every NaN
inline constexpr int kFloatMantissaBits = 23;
inline constexpr int kFloatExponentBias = 127;

inline constexpr std::uint16_t kBf16Nan = 0x7FFF;
inline constexpr std::uint16_t kFp16Nan = 0x7FFF;
inline constexpr std::uint8_t kFp8Nan = 0x7F;

EP_HOST_DEVICE constexpr std::uint32_t bits_of_float(float value) {
  return __builtin_bit_cast(std::uint32_t, value);
}

EP_HOST_DEVICE constexpr float float_of_bits(std::uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

EP_HOST_DEVICE constexpr bool is_float_nan(std::uint32_t bits) {
  return (bits & ~kFloatSignBit) > kFloatInfinity;
}

/// `value`, or the NaN that a GPU returns if it is any NaN.
EP_HOST_DEVICE constexpr float canonical_float(float value) {
  return is_float_nan(bits_of_float(value)) ? float_of_bits(kFloatNan) : value;
}

/// Drops the low `num_bits` of an unsigned value, rounding to nearest, ties to even.
EP_HOST_DEVICE constexpr std::uint32_t shift_right_to_even(std::uint32_t value, int num_bits) {
  const std::uint32_t below_half = (1U << (num_bits - 1)) - 1U;
  const std::uint32_t is_odd = (value >> num_bits) & 1U;
  return (value + below_half + is_odd) >> num_bits;
}

EP_HOST_DEVICE constexpr float bf16_to_float(std::uint16_t bits) {
  return float_of_bits(static_cast<std::uint32_t>(bits) << 16);
}

EP_HOST_DEVICE constexpr std::uint16_t bf16_from_float(float value) {
  const std::uint32_t bits = bits_of_float(value);
  if (is_float_nan(bits)) return kBf16Nan;
  return static_cast<std::uint16_t>(shift_right_to_even(bits, 16));
}

/// A format of 1 sign, `exponent_bits` and `mantissa_bits` bits with IEEE subnormals, narrower than
/// fp32. "Magnitude" is a bit pattern without its sign.
struct NarrowFormat {
  int exponent_bits;
  int mantissa_bits;
  std::uint32_t max_finite;  ///< magnitude of the largest finite value
  std::uint32_t first_nan;   ///< smallest magnitude that is a NaN

  EP_HOST_DEVICE constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  EP_HOST_DEVICE constexpr int dropped_bits() const { return kFloatMantissaBits - mantissa_bits; }
  EP_HOST_DEVICE constexpr std::uint32_t sign_bit() const {
    return 1U << (exponent_bits + mantissa_bits);
  }
};

inline constexpr NarrowFormat kFp16Format{5, 10, 0x7BFF, 0x7C01};
inline constexpr NarrowFormat kFp8E4M3Format{4, 3, 0x7E, 0x7F};
inline constexpr NarrowFormat kFp8E5M2Format{5, 2, 0x7B, 0x7D};

/// fp32 bits of 2^exponent, for the exponent of a normal number.
EP_HOST_DEVICE constexpr std::uint32_t float_power_of_two(int exponent) {
  return static_cast<std::uint32_t>(exponent + kFloatExponentBias) << kFloatMantissaBits;
}

/// Exact.
template <NarrowFormat kFormat>
EP_HOST_DEVICE constexpr float narrow_to_float(std::uint32_t bits) {
  const std::uint32_t magnitude = bits & (kFormat.sign_bit() - 1U);
  if (magnitude >= kFormat.first_nan) return float_of_bits(kFloatNan);
  const std::uint32_t sign = (bits & kFormat.sign_bit()) != 0U ? kFloatSignBit : 0U;
  if (magnitude > kFormat.max_finite) return float_of_bits(sign | kFloatInfinity);
  constexpr std::uint32_t kRebias = float_power_of_two(-kFormat.bias());
  const std::uint32_t shifted = magnitude << kFormat.dropped_bits();
  if ((magnitude >> kFormat.mantissa_bits) != 0U) return float_of_bits(sign | (shifted + kRebias));
  // Reading a subnormal's mantissa behind a hidden 1 makes it too large by the smallest normal.
  constexpr std::uint32_t kSmallestNormal = float_power_of_two(1 - kFormat.bias());
  const float subnormal = float_of_bits(shifted + kSmallestNormal) - float_of_bits(kSmallestNormal);
  return float_of_bits(sign | bits_of_float(subnormal));
}

/// Rounds the magnitude of a number (not of a NaN) to the format, as if exponents had no upper
/// limit: the result may lie above max_finite.
template <NarrowFormat kFormat>
EP_HOST_DEVICE constexpr std::uint32_t narrow_round_magnitude(std::uint32_t magnitude) {
  constexpr std::uint32_t kRebias = float_power_of_two(-kFormat.bias());
  if (magnitude >= float_power_of_two(1 - kFormat.bias())) {
    return shift_right_to_even(magnitude - kRebias, kFormat.dropped_bits());
  }
  // The last place of the anchor is the smallest step of the format, so the addition rounds to it.
  constexpr std::uint32_t kAnchor = float_power_of_two(1 - kFormat.bias() + kFormat.dropped_bits());
  return bits_of_float(float_of_bits(magnitude) + float_of_bits(kAnchor)) - kAnchor;
}

EP_HOST_DEVICE constexpr float fp16_to_float(std::uint16_t bits) {
  return narrow_to_float<kFp16Format>(bits);
}

EP_HOST_DEVICE constexpr std::uint16_t fp16_from_float(float value) {
  const std::uint32_t bits = bits_of_float(value);
  if (is_float_nan(bits)) return kFp16Nan;
  constexpr std::uint32_t kInfinity = kFp16Format.max_finite + 1U;
  const std::uint32_t rounded = narrow_round_magnitude<kFp16Format>(bits & ~kFloatSignBit);
  const std::uint32_t magnitude = rounded < kInfinity ? rounded : kInfinity;
  return static_cast<std::uint16_t>(((bits & kFloatSignBit) >> 16) | magnitude);
}

/// Saturates to the largest finite value.
template <NarrowFormat kFormat>
EP_HOST_DEVICE constexpr std::uint8_t fp8_from_float(float value) {
  const std::uint32_t bits = bits_of_float(value);
  if (is_float_nan(bits)) return kFp8Nan;
  const std::uint32_t rounded = narrow_round_magnitude<kFormat>(bits & ~kFloatSignBit);
  const std::uint32_t magnitude = rounded < kFormat.max_finite ? rounded : kFormat.max_finite;
  return static_cast<std::uint8_t>(((bits & kFloatSignBit) >> 24) | magnitude);
}

EP_HOST_DEVICE constexpr float fp8_e4m3_to_float(std::uint8_t bits) {
  return narrow_to_float<kFp8E4M3Format>(bits);
}

EP_HOST_DEVICE constexpr std::uint8_t fp8_e4m3_from_float(float value) {
  return fp8_from_float<kFp8E4M3Format>(value);
}

EP_HOST_DEVICE constexpr float fp8_e5m2_to_float(std::uint8_t bits) {
  return narrow_to_float<kFp8E5M2Format>(bits);
}

EP_HOST_DEVICE constexpr std::uint8_t fp8_e5m2_from_float(float value) {
  return fp8_from_float<kFp8E5M2Format>(value);
}

}  // namespace ep::layout
