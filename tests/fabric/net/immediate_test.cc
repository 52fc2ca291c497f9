// SPDX-License-Identifier: Apache-2.0
// The 32 bits that travel with a write.
#include "fabric/net/immediate.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>

namespace ep::fabric {
namespace {

TEST(Immediate, SurvivesItsEncodingAtTheEdgesOfItsFields) {
  for (int kind = 1; kind <= 7; ++kind) {
    for (const int context : {0, 1, kMaxNetContexts - 1}) {
      for (const std::uint64_t epoch : {0U, 1U, kNumEpochIds - 1}) {
        for (const std::uint64_t payload : {0U, 1U, kNumPayloads - 1}) {
          const Immediate immediate{.kind = static_cast<ImmediateKind>(kind),
                                    .context = context,
                                    .epoch = epoch_bits(epoch),
                                    .payload = payload_bits(payload)};
          EXPECT_EQ(decode_immediate(encode(immediate)), immediate);
        }
      }
    }
  }
}

TEST(Immediate, NumbersWrap) {
  EXPECT_EQ(epoch_bits(kNumEpochIds), 0U);
  EXPECT_EQ(epoch_bits(~std::uint64_t{0}), kNumEpochIds - 1);
  EXPECT_EQ(payload_bits(std::uint64_t{1} << 32), 0U);
  EXPECT_EQ(payload_bits(~std::uint64_t{0}), kNumPayloads - 1);
}

TEST(Immediate, KindZeroIsNone) {
  EXPECT_FALSE(decode_immediate(0).has_value());
  EXPECT_FALSE(decode_immediate((1U << 29) - 1).has_value());
}

TEST(Control, SurvivesItsEncoding) {
  for (int kind = 1; kind <= 6; ++kind) {
    for (const std::uint32_t argument : {0U, 5U, kNumControlArguments - 1}) {
      const std::uint16_t payload = encode(Control{static_cast<ControlKind>(kind), argument});
      ASSERT_LT(payload, kNumPayloads);
      const auto control = decode_control(payload);
      ASSERT_TRUE(control.has_value());
      EXPECT_EQ(static_cast<int>(control->kind), kind);
      EXPECT_EQ(control->argument, argument);
    }
  }
}

TEST(Control, UnknownKindsAreNone) {
  EXPECT_FALSE(decode_control(0).has_value());
  EXPECT_FALSE(decode_control(payload_bits(7U << kControlArgumentBits)).has_value());
  EXPECT_FALSE(decode_control(kNumPayloads - 1).has_value());
}

}  // namespace
}  // namespace ep::fabric
