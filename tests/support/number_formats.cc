// SPDX-License-Identifier: Apache-2.0
// Scalar conversions of the reducible types for the oracle, written from the formats' definitions.
#include "tests/support/number_formats.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace ep::test {
namespace {

constexpr NumberFormat kBf16Format{
    .significand_bits = 8, .min_exponent = -126, .max_exponent = 127};
constexpr NumberFormat kFp16Format{.significand_bits = 11, .min_exponent = -14, .max_exponent = 15};
constexpr NumberFormat kFp32Format{
    .significand_bits = 24, .min_exponent = -126, .max_exponent = 127};

constexpr std::uint16_t kNan16 = 0x7FFF;
constexpr std::uint32_t kNan32 = 0x7FFFFFFF;
constexpr int kFp16SignificandBits = 10;
constexpr int kBf16Shift = 16;

template <class T>
T load(const std::byte* source) {
  T value;
  std::memcpy(&value, source, sizeof(T));
  return value;
}

float widen_fp16(std::uint16_t bits) {
  const int exponent = (bits >> kFp16SignificandBits) & 0x1F;
  const int fraction = bits & 0x3FF;
  const float sign = (bits & 0x8000) != 0 ? -1.0F : 1.0F;
  if (exponent == 0x1F && fraction != 0) return std::bit_cast<float>(kNan32);
  if (exponent == 0x1F) return sign * HUGE_VALF;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
}

std::uint16_t narrow_fp16(float value) {
  if (std::isnan(value)) return kNan16;
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude == 0.0) return sign;
  if (std::isinf(magnitude)) return sign | 0x7C00;
  const double quantum = ulp_at(DType::kFp16, magnitude);
  const double rounded = std::nearbyint(magnitude / quantum) * quantum;
  constexpr double kLargest = 65504.0;
  if (rounded > kLargest) return sign | 0x7C00;
  const int exponent = std::max(std::ilogb(rounded), kFp16Format.min_exponent);
  const bool is_normal = rounded >= std::ldexp(1.0, kFp16Format.min_exponent);
  const int significand = static_cast<int>(std::ldexp(rounded, kFp16SignificandBits - exponent));
  const int biased = is_normal ? exponent + 15 : 0;
  return static_cast<std::uint16_t>(sign | (biased << kFp16SignificandBits) |
                                    (significand & 0x3FF));
}

std::uint16_t narrow_bf16(float value) {
  if (std::isnan(value)) return kNan16;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  // Adding just under half, plus one if the kept part is odd, carries exactly when rounding goes
  // up.
  return static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> kBf16Shift) & 1)) >> kBf16Shift);
}

}  // namespace

NumberFormat format_of(DType dtype) {
  if (dtype == DType::kBf16) return kBf16Format;
  return dtype == DType::kFp16 ? kFp16Format : kFp32Format;
}

float widen(DType dtype, const std::byte* element) {
  if (dtype == DType::kFp32) return load<float>(element);
  const auto bits = load<std::uint16_t>(element);
  if (dtype == DType::kFp16) return widen_fp16(bits);
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << kBf16Shift);
}

void narrow(DType dtype, float value, std::byte* element) {
  if (dtype == DType::kFp32) {
    const std::uint32_t bits = std::isnan(value) ? kNan32 : std::bit_cast<std::uint32_t>(value);
    std::memcpy(element, &bits, sizeof(bits));
    return;
  }
  const std::uint16_t bits = dtype == DType::kFp16 ? narrow_fp16(value) : narrow_bf16(value);
  std::memcpy(element, &bits, sizeof(bits));
}

double ulp_at(DType dtype, double value) {
  const NumberFormat format = format_of(dtype);
  const double magnitude = std::fabs(value);
  const int exponent =
      magnitude == 0.0 ? format.min_exponent : std::max(std::ilogb(magnitude), format.min_exponent);
  return std::ldexp(1.0, exponent - (format.significand_bits - 1));
}

bool is_nan(DType dtype, const std::byte* element) { return std::isnan(widen(dtype, element)); }

}  // namespace ep::test
