// SPDX-License-Identifier: Apache-2.0
// Announcements: one line each, their word first, every field a place of its own.
#include "layout/announcement.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

namespace ep::test {
namespace {

using layout::BlockAnnouncement;
using layout::OpAnnouncement;

TEST(Announcement, TakesOneLine) {
  EXPECT_EQ(sizeof(OpAnnouncement), 128U);
  EXPECT_EQ(alignof(OpAnnouncement), 128U);
  EXPECT_EQ(sizeof(BlockAnnouncement), 128U);
  EXPECT_EQ(alignof(BlockAnnouncement), 128U);
}

TEST(Announcement, BeginsWithTheWordThatPublishesIt) {
  EXPECT_EQ(offsetof(OpAnnouncement, head), 0U);
  EXPECT_EQ(offsetof(BlockAnnouncement, head), 0U);
}

TEST(Announcement, EveryFieldHasAPlaceOfItsOwn) {
  OpAnnouncement op;
  for (int i = 0; i < layout::kNumOpFields; ++i) {
    op[static_cast<layout::OpField>(i)] = 100 + static_cast<std::uint32_t>(i);
  }
  EXPECT_EQ(op.head, 0U);
  const OpAnnouncement& seen = op;
  for (int i = 0; i < layout::kNumOpFields; ++i) {
    EXPECT_EQ(seen[static_cast<layout::OpField>(i)], 100 + static_cast<std::uint32_t>(i));
  }
}

TEST(Announcement, OnlyTheNumberOfTokensMayDiffer) {
  EXPECT_EQ(static_cast<int>(layout::OpField::kNumTokens), layout::kNumAgreedFields);
  EXPECT_EQ(layout::kNumOpFields, layout::kNumAgreedFields + 1);
}

TEST(Announcement, EverySectionHasAPlaceOfItsOwn) {
  BlockAnnouncement block;
  for (int i = 0; i < layout::kNumSections; ++i) {
    const auto number = static_cast<std::uint32_t>(i);
    block[static_cast<layout::Section>(i)] = {.segment = 200 + number, .offset_units = ~number};
  }
  EXPECT_EQ(block.head, 0U);
  EXPECT_EQ(block.reserved, 0U);
  const BlockAnnouncement& seen = block;
  for (int i = 0; i < layout::kNumSections; ++i) {
    const auto number = static_cast<std::uint32_t>(i);
    EXPECT_EQ(seen[static_cast<layout::Section>(i)].segment, 200 + number);
    EXPECT_EQ(seen[static_cast<layout::Section>(i)].offset_units, ~number);
  }
}

TEST(Announcement, MemoryOfZerosAnnouncesNothing) {
  EXPECT_EQ(OpAnnouncement{}.head, 0U);
  EXPECT_EQ(layout::kAccepted, 0U);
  EXPECT_NE(static_cast<std::uint32_t>(layout::OpKind::kDispatch), 0U);
}

}  // namespace
}  // namespace ep::test
