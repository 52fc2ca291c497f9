// SPDX-License-Identifier: Apache-2.0
// Region lists: nothing overlaps, everything is aligned, the size is the sum.
#include "layout/regions.h"

#include "tests/support/property.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace ep::test {
namespace {

using layout::kLineBytes;

TEST(Regions, RoundsUpToTheNextMultiple) {
  check_property(scaled_rounds(2'000, 100'000), 1, [] {
    const auto value = *rc::gen::inRange<std::int64_t>(0, std::int64_t{1} << 48);
    const auto unit = *rc::gen::inRange<std::int64_t>(1, std::int64_t{1} << 20);
    const std::int64_t rounded = layout::round_up(value, unit);
    RC_ASSERT(rounded % unit == 0);
    RC_ASSERT(rounded >= value && rounded < value + unit);
    RC_ASSERT(layout::div_up(value, unit) == rounded / unit);
  });
}

TEST(Regions, EachStartsOnALineBehindTheOneBefore) {
  check_property(scaled_rounds(2'000, 100'000), 2, [] {
    const auto sizes = *rc::gen::container<std::vector<std::int64_t>>(
        rc::gen::inRange<std::int64_t>(0, std::int64_t{1} << 40));
    layout::Regions regions;
    std::int64_t end = 0;
    std::int64_t num_lines = 0;
    for (const std::int64_t bytes : sizes) {
      const std::int64_t offset = regions.add_bytes(bytes);
      RC_ASSERT(offset % kLineBytes == 0);
      RC_ASSERT(offset >= end && offset < end + kLineBytes);
      end = offset + bytes;
      num_lines += (bytes + kLineBytes - 1) / kLineBytes;
    }
    RC_ASSERT(regions.total_bytes() == num_lines * kLineBytes);
  });
}

TEST(Regions, CountElementsInTheirSize) {
  layout::Regions regions;
  EXPECT_EQ(regions.add<std::uint8_t>(kLineBytes), 0);
  EXPECT_EQ(regions.add<std::uint64_t>(17), kLineBytes);
  EXPECT_EQ(regions.add<std::int32_t>(0), 3 * kLineBytes);
  EXPECT_EQ(regions.add<std::int32_t>(std::int64_t{1} << 40), 3 * kLineBytes);
  EXPECT_EQ(regions.total_bytes(), 3 * kLineBytes + (std::int64_t{4} << 40));
}

}  // namespace
}  // namespace ep::test
