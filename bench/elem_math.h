// SPDX-License-Identifier: Apache-2.0
// One element at a time, on the processor and on a GPU: values of stored elements, and how exact
// the types are. Independent of the library's own conversions.
#pragma once

#include "base/macros.h"

#include <ep/dtype.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ep::bench {

template <class To, class From>
EP_HOST_DEVICE inline To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(To));
  return to;
}

template <class T>
EP_HOST_DEVICE inline T load_elem(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

EP_HOST_DEVICE inline float widen_bf16(std::uint16_t bits) {
  return bits_as<float>(static_cast<std::uint32_t>(bits) << 16);
}

EP_HOST_DEVICE inline float widen_fp16(std::uint16_t bits) {
  // 2^112 moves the exponent's bias from 15 to 127; a subnormal comes out right too.
  constexpr float kRebias = 5.192296858534828e33F;
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  const std::uint32_t magnitude = static_cast<std::uint32_t>(bits & 0x7fff) << 13;
  if ((bits & 0x7c00) == 0x7c00) return bits_as<float>(sign | 0x7f800000u | magnitude);
  const float rebased = bits_as<float>(magnitude) * kRebias;
  return bits_as<float>(sign | bits_as<std::uint32_t>(rebased));
}

EP_HOST_DEVICE inline float widen_e4m3(std::uint8_t bits) {
  constexpr float kRebias = 1.329227995784916e36F;  // 2^120
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x80) << 24;
  const float rebased = bits_as<float>(static_cast<std::uint32_t>(bits & 0x7f) << 20) * kRebias;
  return bits_as<float>(sign | bits_as<std::uint32_t>(rebased));
}

/// Element `index` of a row, without its scale.
EP_HOST_DEVICE inline float elem_of(DType dtype, const std::byte* row, std::int64_t index) {
  switch (dtype) {
    case DType::kBf16:
      return widen_bf16(load_elem<std::uint16_t>(row + 2 * index));
    case DType::kFp16:
      return widen_fp16(load_elem<std::uint16_t>(row + 2 * index));
    case DType::kFp8E4M3:
      return widen_e4m3(load_elem<std::uint8_t>(row + index));
    case DType::kInt8:
      return static_cast<float>(load_elem<std::int8_t>(row + index));
    default:
      return load_elem<float>(row + 4 * index);
  }
}

/// Half the distance of neighbouring numbers at |value|: the largest error of one rounding.
/// Precondition: is_reducible(dtype).
EP_HOST_DEVICE inline double half_ulp(DType dtype, double value) {
  constexpr int kBias = 1023;
  constexpr int kFractionBits = 52;
  int significand_bits = 24;
  int min_exponent = -126;  // of the smallest normal number
  if (dtype == DType::kBf16) significand_bits = 8;
  if (dtype == DType::kFp16) {
    significand_bits = 11;
    min_exponent = -14;
  }
  const auto bits = bits_as<std::uint64_t>(value);
  int exponent = static_cast<int>((bits >> kFractionBits) & 0x7ff) - kBias;
  if (exponent < min_exponent) exponent = min_exponent;
  const int half_step = exponent - significand_bits;
  return bits_as<double>(static_cast<std::uint64_t>(half_step + kBias) << kFractionBits);
}

/// Largest relative error of one fp32 operation.
inline constexpr double kFloatError = 1.0 / 16'777'216.0;

/// Adding `value` to a sum in fp32: the error so far, the addend's and that of the operation.
EP_HOST_DEVICE inline void add_bounded(double& sum,
                                       double& error,
                                       double value,
                                       double value_error) {
  sum += value;
  error += value_error;
  error += kFloatError * (std::fabs(sum) + error);
}

/// A function of an expert and its weight, for one token.
struct WeightedFunction {
  double scale = 1;
  double shift = 0;
  double weight = 0;
};

/// Adds weight * (scale * x + shift), whose inner result is rounded to `dtype` if `is_rounded`.
EP_HOST_DEVICE inline void add_function_of(
    double x, const WeightedFunction& f, DType dtype, bool is_rounded, double (&sum)[2]) {
  constexpr double kExpertOps = 3;  // dequantisation, * x, + shift
  const double product = f.scale * x;
  const double row = product + f.shift;
  double row_error = kExpertOps * kFloatError * (std::fabs(product) + std::fabs(f.shift));
  if (is_rounded) row_error += half_ulp(dtype, std::fabs(row) + row_error);
  const double error =
      std::fabs(f.weight) * (row_error + kFloatError * (std::fabs(row) + row_error));
  add_bounded(sum[0], sum[1], f.weight * row, error);
}

}  // namespace ep::bench
