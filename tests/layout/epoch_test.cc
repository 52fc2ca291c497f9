// SPDX-License-Identifier: Apache-2.0
// Epochs and their tags, around the wrap of 32 bits and at the end of 64.
#include "layout/epoch.h"

#include "tests/support/property.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace ep::test {
namespace {

constexpr std::uint64_t k2To32 = std::uint64_t{1} << 32;
constexpr std::uint64_t kLastEpoch = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kWindow = 10'000;

/// First epochs of stretches of kWindow epochs.
constexpr std::uint64_t kStretches[] = {0, k2To32 - kWindow / 2, 2 * k2To32 - kWindow / 2,
                                        (std::uint64_t{1} << 63) - kWindow / 2,
                                        kLastEpoch - kWindow};

TEST(Epoch, NoTagIsZero) {
  for (const std::uint64_t first : kStretches) {
    for (std::uint64_t i = 0; i <= kWindow; ++i) ASSERT_NE(layout::tag_of(first + i), 0U) << i;
  }
}

TEST(Epoch, TagsOfWordsThatCanMeetDiffer) {
  for (const std::uint64_t first : kStretches) {
    for (std::uint64_t i = 8; i <= kWindow; ++i) {
      for (std::uint64_t age = 1; age <= 8; ++age) {
        ASSERT_NE(layout::tag_of(first + i), layout::tag_of(first + i - age)) << i << " " << age;
      }
    }
  }
}

TEST(Epoch, TagsRepeatAfterAllOthers) {
  check_property(scaled_rounds(2'000, 100'000), 6, [] {
    const auto epoch = *rc::gen::inRange<std::uint64_t>(0, kLastEpoch - k2To32);
    RC_ASSERT(layout::tag_of(epoch + (k2To32 - 1)) == layout::tag_of(epoch));
    const auto distance = *rc::gen::inRange<std::uint64_t>(1, k2To32 - 1);
    RC_ASSERT(layout::tag_of(epoch + distance) != layout::tag_of(epoch));
  });
}

TEST(Epoch, NeighboursUseDifferentBanks) {
  for (const std::uint64_t first : kStretches) {
    for (std::uint64_t i = 1; i <= kWindow; ++i) {
      const int bank = layout::bank_of(first + i);
      ASSERT_GE(bank, 0);
      ASSERT_LT(bank, layout::kNumBanks);
      ASSERT_NE(bank, layout::bank_of(first + i - 1)) << i;
    }
  }
}

TEST(Epoch, WordsKeepTagAndValueApart) {
  check_property(scaled_rounds(2'000, 100'000), 7, [](std::uint32_t tag, std::uint32_t value) {
    const std::uint64_t word = layout::tagged_word(tag, value);
    RC_ASSERT(layout::tag_in(word) == tag);
    RC_ASSERT(layout::value_in(word) == value);
  });
  EXPECT_EQ(layout::tagged_word(0xFFFFFFFFU, 0), 0xFFFFFFFF00000000U);
  EXPECT_EQ(layout::tagged_word(0, 0xFFFFFFFFU), 0x00000000FFFFFFFFU);
}

TEST(Epoch, AChunksWordKeepsItsFirstPairAndItsCount) {
  // As many pairs of one source as a group admits tokens.
  constexpr std::int64_t kMaxPairs = std::int64_t{1} << 28;
  const auto check = [](std::int64_t first, int count) {
    const std::uint32_t value = layout::chunk_value(first, count);
    RC_ASSERT(layout::first_pair_in(value) == first);
    RC_ASSERT(layout::num_pairs_in(value) == count);
  };
  check_property(scaled_rounds(2'000, 100'000), 8, [&check] {
    const int count = *rc::gen::inRange(0, 9);
    check(*rc::gen::inRange<std::int64_t>(0, kMaxPairs), count);
    check(kMaxPairs - 1, count);
    check(0, count);
  });
}

static_assert(layout::tag_of(0) == 1 && layout::tag_of(0xFFFFFFFEU) == 0xFFFFFFFFU,
              "tags are constant expressions");
static_assert(layout::tag_of(0xFFFFFFFFU) == 1 && layout::tag_of(k2To32) == 2);

}  // namespace
}  // namespace ep::test
