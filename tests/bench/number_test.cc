// SPDX-License-Identifier: Apache-2.0
// The bench's own conversions, against values written down from the formats.
#include "bench/number.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace ep::bench {
namespace {

float widened(DType dtype, std::uint32_t bits) {
  std::byte element[sizeof(bits)];
  std::memcpy(element, &bits, sizeof(bits));
  return static_cast<float>(element_value(dtype, element));
}

std::uint32_t narrowed(DType dtype, float value) {
  std::uint32_t bits = 0;
  std::byte element[sizeof(bits)] = {};
  narrow_row({&value, 1}, dtype, {element, static_cast<std::size_t>(size_of(dtype))});
  std::memcpy(&bits, element, sizeof(bits));
  return bits;
}

TEST(BenchNumber, WidensKnownPatterns) {
  EXPECT_EQ(widened(DType::kBf16, 0x3f80), 1.0F);
  EXPECT_EQ(widened(DType::kBf16, 0xc0a0), -5.0F);
  EXPECT_EQ(widened(DType::kFp16, 0x3c00), 1.0F);
  EXPECT_EQ(widened(DType::kFp16, 0x0001), std::ldexp(1.0F, -24));
  EXPECT_EQ(widened(DType::kFp16, 0x7bff), 65504.0F);
  EXPECT_TRUE(std::isinf(widened(DType::kFp16, 0x7c00)));
  EXPECT_EQ(widened(DType::kFp8E4M3, 0x38), 1.0F);
  EXPECT_EQ(widened(DType::kFp8E4M3, 0x7e), 448.0F);
  EXPECT_EQ(widened(DType::kFp8E4M3, 0x81), -std::ldexp(1.0F, -9));
  EXPECT_EQ(widened(DType::kInt8, 0x80), -128.0F);
}

TEST(BenchNumber, EveryFinitePatternSurvivesTheWayThroughFp32) {
  for (DType dtype : {DType::kBf16, DType::kFp16}) {
    for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
      const float value = widened(dtype, bits);
      if (std::isnan(value)) continue;
      ASSERT_EQ(narrowed(dtype, value), bits) << name_of(dtype);
    }
  }
  for (std::uint32_t bits = 0; bits <= 0xff; ++bits) {
    if ((bits & 0x7f) == 0x7f) continue;  // NaN
    ASSERT_EQ(narrowed(DType::kFp8E4M3, widened(DType::kFp8E4M3, bits)), bits);
  }
  for (std::uint32_t bits = 0; bits <= 0xff; ++bits) {
    if (bits == 0x80) continue;  // -128 is never made
    ASSERT_EQ(narrowed(DType::kInt8, widened(DType::kInt8, bits)), bits);
  }
}

/// Half way between two neighbours the one with an even last bit is taken, a bit beyond the nearer.
TEST(BenchNumber, RoundsToNearestEven) {
  for (DType dtype : {DType::kBf16, DType::kFp16, DType::kFp8E4M3}) {
    const std::uint32_t largest = dtype == DType::kFp8E4M3 ? 0x7e
                                  : dtype == DType::kFp16  ? 0x7bff
                                                           : 0x7f7f;
    for (std::uint32_t bits = 0; bits < largest; ++bits) {
      const float low = widened(dtype, bits);
      const float middle = low + (widened(dtype, bits + 1) - low) / 2;
      ASSERT_EQ(narrowed(dtype, middle), bits + (bits & 1)) << name_of(dtype) << " " << bits;
      ASSERT_EQ(narrowed(dtype, std::nextafter(middle, std::numeric_limits<float>::infinity())),
                bits + 1)
          << name_of(dtype);
      ASSERT_EQ(narrowed(dtype, std::nextafter(middle, 0.0F)), bits) << name_of(dtype);
    }
  }
}

TEST(BenchNumber, HalfUlpIsHalfTheDistanceToTheNextNumber) {
  for (DType dtype : {DType::kBf16, DType::kFp16}) {
    for (std::uint32_t bits = 0; bits < 0x7bff; ++bits) {
      const double low = widened(dtype, bits);
      const double step = widened(dtype, bits + 1) - low;
      ASSERT_EQ(half_ulp(dtype, low), step / 2) << name_of(dtype) << " " << bits;
      ASSERT_EQ(half_ulp(dtype, -low), step / 2);
      ASSERT_EQ(round_to(dtype, low + step / 4), low);
    }
  }
  EXPECT_EQ(half_ulp(DType::kFp32, 1.0), std::ldexp(1.0, -24));
}

TEST(BenchNumber, NansOfPoisonStayNans) {
  for (DType dtype : {DType::kBf16, DType::kFp16, DType::kFp32}) {
    EXPECT_TRUE(std::isnan(widened(dtype, 0xffffffffu))) << name_of(dtype);
  }
}

TEST(BenchNumber, QuantisedRowsComeBackWithinHalfAStep) {
  constexpr std::size_t kHidden = 300;  // the last block is short
  std::vector<float> values(kHidden);
  for (std::size_t i = 0; i < kHidden; ++i)
    values[i] = std::sin(static_cast<float>(i)) * static_cast<float>(i);
  for (DType dtype : {DType::kInt8, DType::kFp8E4M3}) {
    std::vector<std::byte> bytes(kHidden);
    std::vector<float> scales(static_cast<std::size_t>(num_scales_of(dtype, kHidden)));
    ASSERT_EQ(scales.size(), 3u);
    quantise_row(values, dtype, bytes, scales);
    std::vector<float> back(kHidden);
    widen_row({.dtype = dtype, .bytes = bytes, .scales = scales}, back);
    for (std::size_t i = 0; i < kHidden; ++i) {
      const float scale = scales[i / kScaleBlock];
      const float step =
          dtype == DType::kInt8 ? scale : std::max(std::fabs(values[i]) / 8, scale / 512);
      ASSERT_LE(std::fabs(back[i] - values[i]), step * 0.501F) << name_of(dtype) << " " << i;
    }
  }
}

TEST(BenchNumber, AZeroBlockHasScaleOne) {
  const std::vector<float> values(16, 0.0F);
  std::vector<std::byte> bytes(16);
  std::vector<float> scales(1);
  quantise_row(values, DType::kFp8E4M3, bytes, scales);
  EXPECT_EQ(scales[0], 1.0F);
  EXPECT_EQ(bytes[7], std::byte{0});
}

}  // namespace
}  // namespace ep::bench
