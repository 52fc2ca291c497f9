// SPDX-License-Identifier: Apache-2.0
// Tests of the oracle's own conversions, against values from the formats' definitions.
#include "tests/support/number_formats.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace ep::test {
namespace {

std::uint32_t narrowed(DType dtype, float value) {
  std::array<std::byte, 4> bytes{};
  narrow(dtype, value, bytes.data());
  std::uint32_t bits = 0;
  std::memcpy(&bits, bytes.data(), bytes.size());
  return bits;
}

float widened(DType dtype, std::uint32_t bits) {
  std::array<std::byte, 4> bytes{};
  std::memcpy(bytes.data(), &bits, bytes.size());
  return widen(dtype, bytes.data());
}

TEST(NumberFormats, KnownValuesRoundToKnownBits) {
  EXPECT_EQ(narrowed(DType::kBf16, 1.0F), 0x3F80U);
  EXPECT_EQ(narrowed(DType::kBf16, -2.0F), 0xC000U);
  EXPECT_EQ(narrowed(DType::kFp16, 1.0F), 0x3C00U);
  EXPECT_EQ(narrowed(DType::kFp16, 65504.0F), 0x7BFFU);
  EXPECT_EQ(narrowed(DType::kFp16, -0x1p-24F), 0x8001U);
  EXPECT_EQ(narrowed(DType::kFp16, 0x1p-14F), 0x0400U);
  EXPECT_EQ(narrowed(DType::kFp32, 1.0F), 0x3F800000U);
}

TEST(NumberFormats, TiesGoToTheEvenNeighbour) {
  EXPECT_EQ(narrowed(DType::kBf16, 1.0F + 0x1p-8F), 0x3F80U);
  EXPECT_EQ(narrowed(DType::kBf16, 1.0F + 0x3p-8F), 0x3F82U);
  EXPECT_EQ(narrowed(DType::kFp16, 1.0F + 0x1p-11F), 0x3C00U);
  EXPECT_EQ(narrowed(DType::kFp16, 1.0F + 0x3p-11F), 0x3C02U);
  EXPECT_EQ(narrowed(DType::kFp16, 0x1p-25F), 0x0000U);
  EXPECT_EQ(narrowed(DType::kFp16, 0x3p-25F), 0x0002U);
}

TEST(NumberFormats, TooLargeValuesBecomeInfinite) {
  EXPECT_EQ(narrowed(DType::kFp16, 65519.0F), 0x7BFFU);
  EXPECT_EQ(narrowed(DType::kFp16, 65520.0F), 0x7C00U);
  EXPECT_EQ(narrowed(DType::kFp16, -1e30F), 0xFC00U);
  EXPECT_EQ(narrowed(DType::kFp16, HUGE_VALF), 0x7C00U);
  EXPECT_EQ(narrowed(DType::kBf16, std::numeric_limits<float>::max()), 0x7F80U);
}

TEST(NumberFormats, EveryNanBecomesOnePattern) {
  for (const std::uint32_t bits : {0x7F800001U, 0xFFC00000U, 0x7FFFFFFFU}) {
    const auto nan = std::bit_cast<float>(bits);
    EXPECT_EQ(narrowed(DType::kBf16, nan), 0x7FFFU);
    EXPECT_EQ(narrowed(DType::kFp16, nan), 0x7FFFU);
    EXPECT_EQ(narrowed(DType::kFp32, nan), 0x7FFFFFFFU);
  }
}

TEST(NumberFormats, EverySixteenBitNumberSurvivesTheRoundTrip) {
  for (const DType dtype : {DType::kBf16, DType::kFp16}) {
    for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
      const float value = widened(dtype, bits);
      if (std::isnan(value)) continue;
      ASSERT_EQ(narrowed(dtype, value), bits) << name_of(dtype);
    }
  }
}

TEST(NumberFormats, UlpIsTheDistanceToTheNextNumber) {
  EXPECT_EQ(ulp_at(DType::kBf16, 1.0), 0x1p-7);
  EXPECT_EQ(ulp_at(DType::kBf16, -3.0), 0x1p-6);
  EXPECT_EQ(ulp_at(DType::kFp16, 1.0), 0x1p-10);
  EXPECT_EQ(ulp_at(DType::kFp16, 0.0), 0x1p-24);
  EXPECT_EQ(ulp_at(DType::kFp32, 1.5), 0x1p-23);
}

}  // namespace
}  // namespace ep::test
