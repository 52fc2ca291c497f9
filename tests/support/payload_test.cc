// SPDX-License-Identifier: Apache-2.0
// Tests that coded payload and canaries notice what they are for.
#include "tests/support/payload.h"

#include <gtest/gtest.h>

#include <vector>

namespace ep::test {
namespace {

constexpr PayloadId kId{.src_rank = 3, .token = 17, .call = 9};

std::vector<std::byte> coded_row(const PayloadId& id, std::size_t bytes) {
  std::vector<std::byte> row(bytes);
  fill_row(row, id);
  return row;
}

TEST(Payload, TheRightRowMatches) { EXPECT_EQ(row_mismatch(coded_row(kId, 160), kId), ""); }

TEST(Payload, AnotherSourceTokenOrCallIsNamed) {
  EXPECT_NE(row_mismatch(coded_row({.src_rank = 2, .token = 17, .call = 9}, 32), kId), "");
  EXPECT_NE(row_mismatch(coded_row({.src_rank = 3, .token = 18, .call = 9}, 32), kId), "");
  EXPECT_EQ(row_mismatch(coded_row({.src_rank = 3, .token = 17, .call = 8}, 32), kId),
            "expected rank 3, token 17, block 0, call 9, got rank 3, token 17, block 0, call 8");
}

TEST(Payload, AShiftedBlockIsFound) {
  auto row = coded_row(kId, 64);
  std::copy(row.begin() + 16, row.begin() + 32, row.begin() + 48);
  EXPECT_EQ(row_mismatch(row, kId),
            "expected rank 3, token 17, block 3, call 9, got rank 3, token 17, block 1, call 9");
}

TEST(Payload, PoisonIsShownAsWords) {
  std::vector<std::byte> row(16);
  poison(row, Poison::kLarge);
  EXPECT_EQ(
      row_mismatch(row, kId),
      "expected rank 3, token 17, block 0, call 9, got words 7f7f7f7f 7f7f7f7f 7f7f7f7f 7f7f7f7f");
}

TEST(Payload, OneWrongScaleByteIsFound) {
  std::vector<std::byte> scales(13);
  fill_scales(scales, kId);
  EXPECT_EQ(scales_mismatch(scales, kId), "");
  scales[12] ^= std::byte{1};
  EXPECT_NE(scales_mismatch(scales, kId), "");
}

TEST(GuardedRows, AnyByteOutsideTheRowsIsNoticed) {
  constexpr std::int64_t kRowBytes = 32;
  GuardedRows rows(3, kRowBytes, 48);
  for (int row = 0; row < 3; ++row) fill_row(rows.row(row), kId);
  EXPECT_EQ(rows.broken_canary(), "");
  std::byte* behind = rows.row(1).data() + kRowBytes;
  const std::byte canary = *behind;
  *behind = std::byte{0};
  EXPECT_EQ(rows.broken_canary(), "byte 0 behind row 1 was written");
  *behind = canary;
  *(rows.data() - 1) = std::byte{0};
  EXPECT_EQ(rows.broken_canary(), "byte -1 before the first row was written");
}

TEST(GuardedRows, RowsStartPoisonedAndAligned) {
  GuardedRows rows(2, 16, 16);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(rows.data()) % 64, 0U);
  EXPECT_EQ(rows.row(1)[15], std::byte{0x7F});
}

}  // namespace
}  // namespace ep::test
