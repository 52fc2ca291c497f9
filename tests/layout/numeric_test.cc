// SPDX-License-Identifier: Apache-2.0
// Scalar conversions against the definition of each format, over every number that the format has.

#include "layout/numeric.h"

#include "tests/support/property.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

namespace ep::test {
namespace {

/// A format by its definition, with its two conversions.
struct Format {
  const char* name;
  int exponent_bits;
  int mantissa_bits;
  std::uint32_t largest;   ///< bits of the largest finite value
  std::uint32_t above;     ///< bits of what larger values become
  std::uint32_t infinity;  ///< bits of what infinity becomes
  std::uint32_t nan;       ///< bits of what a NaN becomes
  bool has_infinity;
  float (*widen)(std::uint32_t bits);
  std::uint32_t (*narrow)(float value);

  std::uint32_t sign_bit() const { return 1U << (exponent_bits + mantissa_bits); }
  std::uint32_t num_patterns() const { return sign_bit() << 1; }
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
};

const Format kFormats[] = {
    {.name = "bf16",
     .exponent_bits = 8,
     .mantissa_bits = 7,
     .largest = 0x7F7F,
     .above = 0x7F80,
     .infinity = 0x7F80,
     .nan = 0x7FFF,
     .has_infinity = true,
     .widen =
         [](std::uint32_t bits) { return layout::bf16_to_float(static_cast<std::uint16_t>(bits)); },
     .narrow = [](float value) -> std::uint32_t { return layout::bf16_from_float(value); }},
    {.name = "fp16",
     .exponent_bits = 5,
     .mantissa_bits = 10,
     .largest = 0x7BFF,
     .above = 0x7C00,
     .infinity = 0x7C00,
     .nan = 0x7FFF,
     .has_infinity = true,
     .widen =
         [](std::uint32_t bits) { return layout::fp16_to_float(static_cast<std::uint16_t>(bits)); },
     .narrow = [](float value) -> std::uint32_t { return layout::fp16_from_float(value); }},
    {.name = "e4m3",
     .exponent_bits = 4,
     .mantissa_bits = 3,
     .largest = 0x7E,
     .above = 0x7E,
     .infinity = 0x7E,
     .nan = 0x7F,
     .has_infinity = false,
     .widen =
         [](std::uint32_t bits) {
           return layout::fp8_e4m3_to_float(static_cast<std::uint8_t>(bits));
         },
     .narrow = [](float value) -> std::uint32_t { return layout::fp8_e4m3_from_float(value); }},
    {.name = "e5m2",
     .exponent_bits = 5,
     .mantissa_bits = 2,
     .largest = 0x7B,
     .above = 0x7B,
     .infinity = 0x7B,
     .nan = 0x7F,
     .has_infinity = true,
     .widen =
         [](std::uint32_t bits) {
           return layout::fp8_e5m2_to_float(static_cast<std::uint8_t>(bits));
         },
     .narrow = [](float value) -> std::uint32_t { return layout::fp8_e5m2_from_float(value); }},
};

/// The number with these bits; magnitudes up to `largest` only.
double number_of(const Format& format, std::uint32_t bits) {
  const std::uint32_t magnitude = bits & (format.sign_bit() - 1U);
  const int exponent = static_cast<int>(magnitude >> format.mantissa_bits);
  const int hidden = exponent == 0 ? 0 : 1 << format.mantissa_bits;
  const int significand =
      hidden + static_cast<int>(magnitude & ((1U << format.mantissa_bits) - 1U));
  const int scale = (exponent == 0 ? 1 : exponent) - format.bias() - format.mantissa_bits;
  const double number = std::ldexp(significand, scale);
  return (bits & format.sign_bit()) != 0 ? -number : number;
}

class Numeric : public ::testing::TestWithParam<Format> {};

TEST_P(Numeric, WidensEveryNumberExactly) {
  const Format& format = GetParam();
  for (std::uint32_t bits = 0; bits < format.num_patterns(); ++bits) {
    if ((bits & (format.sign_bit() - 1U)) > format.largest) continue;
    const float value = format.widen(bits);
    ASSERT_EQ(static_cast<double>(value), number_of(format, bits)) << format.name << " " << bits;
    ASSERT_EQ(std::signbit(value), (bits & format.sign_bit()) != 0) << format.name << " " << bits;
  }
}

TEST_P(Numeric, WidensWhatIsNoNumber) {
  const Format& format = GetParam();
  for (std::uint32_t bits = format.largest + 1; bits < format.sign_bit(); ++bits) {
    const bool is_infinity = format.has_infinity && bits == format.largest + 1;
    ASSERT_EQ(std::isinf(format.widen(bits)), is_infinity) << format.name << " " << bits;
    ASSERT_EQ(std::isnan(format.widen(bits)), !is_infinity) << format.name << " " << bits;
    ASSERT_EQ(std::isinf(format.widen(bits | format.sign_bit())), is_infinity);
  }
  if (format.has_infinity) {
    EXPECT_LT(format.widen(format.sign_bit() | (format.largest + 1)), 0.0F);
  }
}

TEST_P(Numeric, NarrowsEveryNumberOfTheFormatToItself) {
  const Format& format = GetParam();
  for (std::uint32_t bits = 0; bits < format.num_patterns(); ++bits) {
    if ((bits & (format.sign_bit() - 1U)) > format.largest) continue;
    ASSERT_EQ(format.narrow(format.widen(bits)), bits) << format.name;
  }
}

/// Between two neighbours the result can change only at the middle: checked there and one step of
/// fp32 to both sides.
TEST_P(Numeric, RoundsToNearestAndTiesToEven) {
  const Format& format = GetParam();
  for (std::uint32_t lower = 0; lower < format.largest; ++lower) {
    const std::uint32_t upper = lower + 1;
    const float middle =
        static_cast<float>((number_of(format, lower) + number_of(format, upper)) / 2);
    const float below = std::nextafter(middle, 0.0F);
    const float above = std::nextafter(middle, HUGE_VALF);
    ASSERT_EQ(format.narrow(below), lower) << format.name;
    ASSERT_EQ(format.narrow(middle), lower % 2 == 0 ? lower : upper) << format.name;
    ASSERT_EQ(format.narrow(above), upper) << format.name;
    ASSERT_EQ(format.narrow(-below), lower | format.sign_bit()) << format.name;
    ASSERT_EQ(format.narrow(-above), upper | format.sign_bit()) << format.name;
  }
}

TEST_P(Numeric, TreatsWhatLiesAboveTheLargestNumber) {
  const Format& format = GetParam();
  const double largest = number_of(format, format.largest);
  const double step = largest - number_of(format, format.largest - 1);
  const float middle = static_cast<float>(largest + step / 2);
  EXPECT_EQ(format.narrow(std::nextafter(middle, 0.0F)), format.largest);
  EXPECT_EQ(format.narrow(middle), format.above);
  EXPECT_EQ(format.narrow(-middle), format.above | format.sign_bit());
  EXPECT_EQ(format.narrow(std::numeric_limits<float>::max()), format.above);
  EXPECT_EQ(format.narrow(HUGE_VALF), format.infinity);
  EXPECT_EQ(format.narrow(-HUGE_VALF), format.infinity | format.sign_bit());
}

TEST_P(Numeric, GivesOneBitPatternForEveryNan) {
  const Format& format = GetParam();
  for (std::uint32_t payload = 1; payload < (1U << 23); payload = payload * 2 + 1) {
    EXPECT_EQ(format.narrow(layout::float_of_bits(0x7F800000U | payload)), format.nan);
    EXPECT_EQ(format.narrow(layout::float_of_bits(0xFF800000U | payload)), format.nan);
  }
}

TEST_P(Numeric, TurnsTheSmallestNumbersOfFp32IntoZeroOfTheirSign) {
  const Format& format = GetParam();
  const float smallest = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(format.narrow(smallest), 0U);
  EXPECT_EQ(format.narrow(-smallest), format.sign_bit());
  EXPECT_EQ(format.narrow(-0.0F), format.sign_bit());
}

/// No number of the format is nearer to a value than the one it becomes.
TEST_P(Numeric, NarrowsAnyValueToItsNearestNumber) {
  const Format& format = GetParam();
  check_property(scaled_rounds(20'000, 1'000'000), 3, [&format](std::uint32_t bits) {
    const float value = layout::float_of_bits(bits);
    const double magnitude = std::fabs(static_cast<double>(value));
    RC_PRE(magnitude <= number_of(format, format.largest));
    const std::uint32_t result = format.narrow(value);
    const std::uint32_t rounded = result & (format.sign_bit() - 1U);
    RC_ASSERT((result != rounded) == std::signbit(value));
    const double error = std::fabs(number_of(format, rounded) - magnitude);
    if (rounded > 0) RC_ASSERT(error <= std::fabs(number_of(format, rounded - 1) - magnitude));
    if (rounded < format.largest) {
      RC_ASSERT(error <= std::fabs(number_of(format, rounded + 1) - magnitude));
    }
  });
}

std::string format_name(const ::testing::TestParamInfo<Format>& format) {
  return format.param.name;
}

INSTANTIATE_TEST_SUITE_P(Formats, Numeric, ::testing::ValuesIn(kFormats), format_name);

TEST(CanonicalFloat, ChangesNansOnly) {
  for (const std::uint32_t bits :
       {0x00000000U, 0x80000000U, 0x00000001U, 0x7F800000U, 0xFF800000U}) {
    EXPECT_EQ(layout::bits_of_float(layout::canonical_float(layout::float_of_bits(bits))), bits);
  }
  for (const std::uint32_t bits : {0x7F800001U, 0xFFC00000U, 0xFFFFFFFFU, 0x7FFFFFFFU}) {
    const float canonical = layout::canonical_float(layout::float_of_bits(bits));
    EXPECT_EQ(layout::bits_of_float(canonical), layout::kFloatNan);
  }
}

static_assert(layout::bf16_from_float(1.0F) == 0x3F80, "conversions are constant expressions");
static_assert(layout::fp16_to_float(0x0001) == 0x1p-24F, "conversions are constant expressions");
static_assert(layout::fp8_e4m3_from_float(1e9F) == 0x7E, "conversions are constant expressions");

}  // namespace
}  // namespace ep::test
