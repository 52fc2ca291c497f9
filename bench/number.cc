// SPDX-License-Identifier: Apache-2.0
// Bit arithmetic of bf16, fp16, e4m3 and int8, in loops that compilers vectorise.
#include "bench/number.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

namespace ep::bench {
namespace {

constexpr float kMaxE4M3 = 448.0F;
constexpr float kMaxInt8 = 127.0F;
/// Added and taken away again, it rounds |x| < 2^22 to an integer, ties to even.
constexpr float kRoundToInteger = 12'582'912.0F;  // 1.5 * 2^23

std::uint16_t narrow_bf16(float value) {
  auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return 0x7fff;
  bits += 0x7fff + ((bits >> 16) & 1);
  return static_cast<std::uint16_t>(bits >> 16);
}

std::uint16_t narrow_fp16(float value) {
  constexpr float kOverflow = 65'520.0F;          // half way to the number after 65,504
  constexpr float kMinNormal = 6.103515625e-05F;  // 2^-14
  constexpr float kSubnormals = 16'777'216.0F;    // 2^24: one per subnormal step
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return 0x7fff;
  if (magnitude >= kOverflow) return static_cast<std::uint16_t>(sign | 0x7c00);
  if (magnitude < kMinNormal) {
    const float steps = (magnitude * kSubnormals + kRoundToInteger) - kRoundToInteger;
    return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(steps));
  }
  std::uint32_t rounded = (bits & 0x7fffffffu) + 0xfff + ((bits >> 13) & 1);
  rounded -= 112u << 23;
  return static_cast<std::uint16_t>(sign | (rounded >> 13));
}

/// |value| <= 448.
std::uint8_t narrow_e4m3(float value) {
  constexpr float kMinNormal = 0.015625F;  // 2^-6
  constexpr float kSubnormals = 512.0F;    // 2^9
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const float magnitude = std::fabs(value);
  const float steps = (magnitude * kSubnormals + kRoundToInteger) - kRoundToInteger;
  std::uint32_t rounded = (bits & 0x7fffffffu) + 0x7ffff + ((bits >> 20) & 1);
  rounded = (rounded - (120u << 23)) >> 20;
  const std::uint32_t coded = magnitude < kMinNormal ? static_cast<std::uint32_t>(steps) : rounded;
  return static_cast<std::uint8_t>(((bits >> 24) & 0x80) | coded);
}

/// |value| <= 127.
std::int8_t narrow_int8(float value) {
  return static_cast<std::int8_t>((value + kRoundToInteger) - kRoundToInteger);
}

template <class T, class Widen>
void widen_each(std::span<const std::byte> bytes, std::span<float> out, Widen widen) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = widen(load_elem<T>(&bytes[i * sizeof(T)]));
}

template <class T, class Narrow>
void narrow_each(std::span<const float> values, std::span<std::byte> out, Narrow narrow) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const T bits = narrow(values[i]);
    std::memcpy(&out[i * sizeof(T)], &bits, sizeof(T));
  }
}

void apply_scales(std::span<const float> scales, std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] *= scales[i / static_cast<std::size_t>(kScaleBlock)];
  }
}

float largest_magnitude(std::span<const float> values) {
  float largest = 0;
  for (float value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

}  // namespace

void widen_row(const RowView& row, std::span<float> out) {
  switch (row.dtype) {
    case DType::kBf16:
      widen_each<std::uint16_t>(row.bytes, out, widen_bf16);
      break;
    case DType::kFp16:
      widen_each<std::uint16_t>(row.bytes, out, widen_fp16);
      break;
    case DType::kFp8E4M3:
      widen_each<std::uint8_t>(row.bytes, out, widen_e4m3);
      break;
    case DType::kInt8:
      widen_each<std::int8_t>(row.bytes, out, [](std::int8_t v) { return static_cast<float>(v); });
      break;
    default:
      widen_each<float>(row.bytes, out, [](float value) { return value; });
      break;
  }
  if (!row.scales.empty()) apply_scales(row.scales, out);
}

void narrow_row(std::span<const float> values, DType dtype, std::span<std::byte> out) {
  switch (dtype) {
    case DType::kBf16:
      return narrow_each<std::uint16_t>(values, out, narrow_bf16);
    case DType::kFp16:
      return narrow_each<std::uint16_t>(values, out, narrow_fp16);
    case DType::kFp8E4M3:
      return narrow_each<std::uint8_t>(values, out, narrow_e4m3);
    case DType::kInt8:
      return narrow_each<std::int8_t>(values, out, narrow_int8);
    default:
      std::memcpy(out.data(), values.data(), values.size_bytes());
  }
}

void quantise_row(std::span<const float> values,
                  DType dtype,
                  std::span<std::byte> out,
                  std::span<float> scales) {
  const float max_value = dtype == DType::kInt8 ? kMaxInt8 : kMaxE4M3;
  std::array<float, kScaleBlock> scaled{};
  for (std::size_t block = 0; block < scales.size(); ++block) {
    const std::size_t first = block * scaled.size();
    const auto part = values.subspan(first, std::min(values.size() - first, scaled.size()));
    const float largest = largest_magnitude(part);
    const float scale = largest > 0 ? largest / max_value : 1.0F;
    scales[block] = scale;
    std::transform(part.begin(), part.end(), scaled.begin(), [scale, max_value](float value) {
      return std::clamp(value / scale, -max_value, max_value);
    });
    narrow_row({scaled.data(), part.size()}, dtype, out.subspan(first, part.size()));
  }
}

double element_value(DType dtype, const std::byte* element) {
  float value = 0;
  widen_row(
      {.dtype = dtype, .bytes = {element, static_cast<std::size_t>(size_of(dtype))}, .scales = {}},
      {&value, 1});
  return static_cast<double>(value);
}

double round_to(DType dtype, double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double ulp = 2 * half_ulp(dtype, value);
  return std::nearbyint(value / ulp) * ulp;
}

}  // namespace ep::bench
