// SPDX-License-Identifier: Apache-2.0
// Announcements: whole lines, the head first, every field a place of its own.
#include "layout/announcement.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

namespace ep::test {
namespace {

using layout::AnnouncedBlock;
using layout::AnnouncedOp;
using layout::BlockAnnouncement;
using layout::OpAnnouncement;

TEST(Announcement, TakesWholeLines) {
  EXPECT_EQ(sizeof(AnnouncedOp), 128U);
  EXPECT_EQ(alignof(AnnouncedOp), 128U);
  EXPECT_EQ(sizeof(AnnouncedBlock), 256U);
  EXPECT_EQ(alignof(AnnouncedBlock), 128U);
}

TEST(Announcement, FieldsFollowTheHead) {
  // TaggedWords takes head and fields as one array.
  EXPECT_EQ(offsetof(AnnouncedOp, head), 0U);
  EXPECT_EQ(offsetof(AnnouncedOp, fields), 8U);
  EXPECT_EQ(AnnouncedOp::kNumFields, layout::kNumOpFields);
  EXPECT_EQ(offsetof(AnnouncedBlock, head), 0U);
  EXPECT_EQ(offsetof(AnnouncedBlock, fields), 8U);
  EXPECT_EQ(AnnouncedBlock::kNumFields, layout::kNumBlockFields);
}

TEST(Announcement, EveryFieldHasAPlaceOfItsOwn) {
  OpAnnouncement op;
  for (int i = 0; i < layout::kNumOpFields; ++i) {
    op[static_cast<layout::OpField>(i)] = 100 + static_cast<std::uint32_t>(i);
  }
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
  block[layout::BlockField::kCapacityRows] = 1;
  block[layout::BlockField::kRowStrideUnits] = 2;
  block[layout::BlockField::kIsStaged] = 3;
  for (int i = 0; i < layout::kNumSections; ++i) {
    const auto number = static_cast<std::uint32_t>(i);
    block.place(static_cast<layout::Section>(i),
                {.segment = 200 + number, .offset_units = ~number});
  }
  const BlockAnnouncement& seen = block;
  EXPECT_EQ(seen[layout::BlockField::kCapacityRows], 1U);
  EXPECT_EQ(seen[layout::BlockField::kRowStrideUnits], 2U);
  EXPECT_EQ(seen[layout::BlockField::kIsStaged], 3U);
  for (int i = 0; i < layout::kNumSections; ++i) {
    const auto number = static_cast<std::uint32_t>(i);
    EXPECT_EQ(seen[static_cast<layout::Section>(i)].segment, 200 + number);
    EXPECT_EQ(seen[static_cast<layout::Section>(i)].offset_units, ~number);
  }
}

TEST(Announcement, MemoryOfZerosAnnouncesNothing) {
  EXPECT_EQ(AnnouncedOp{}.head, 0U);
  EXPECT_EQ(layout::kAccepted, 0U);
  EXPECT_NE(static_cast<std::uint32_t>(layout::OpKind::kDispatch), 0U);
}

}  // namespace
}  // namespace ep::test
