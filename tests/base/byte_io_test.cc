// SPDX-License-Identifier: Apache-2.0
// ByteWriter and ByteReader: what is written is read back, and nothing past the end is read.
#include "base/byte_io.h"

#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace ep::base {
namespace {

TEST(ByteIo, ReadsBackWhatWasWritten) {
  ByteWriter writer;
  writer.put(std::int32_t{-7}).put(std::numeric_limits<std::uint64_t>::max()).put_text("torch/1");
  ByteReader reader(writer.bytes());
  EXPECT_EQ(reader.get<std::int32_t>(), -7);
  EXPECT_EQ(reader.get<std::uint64_t>(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(reader.get_text(16), "torch/1");
  EXPECT_TRUE(reader.is_complete());
}

TEST(ByteIo, IsLittleEndian) {
  ByteWriter writer;
  writer.put(std::uint32_t{0x01020304});
  const std::vector<std::byte> expected = {std::byte{4}, std::byte{3}, std::byte{2}, std::byte{1}};
  EXPECT_EQ(writer.take(), expected);
}

TEST(ByteIo, ReadingPastTheEndFailsForGood) {
  ByteWriter writer;
  writer.put(std::uint16_t{1}).put(std::uint8_t{2});
  ByteReader reader(writer.bytes());
  EXPECT_EQ(reader.get<std::uint32_t>(), 0u);
  EXPECT_TRUE(reader.has_failed());
  EXPECT_EQ(reader.get<std::uint8_t>(), 0u) << "a failed reader must not yield bytes";
  EXPECT_FALSE(reader.is_complete());
}

TEST(ByteIo, RefusesATextThatIsLongerThanAllowed) {
  ByteWriter writer;
  writer.put_text("12345");
  ByteReader reader(writer.bytes());
  EXPECT_EQ(reader.get_text(4), "");
  EXPECT_TRUE(reader.has_failed());
}

TEST(ByteIo, RefusesATextThatIsLongerThanTheMessage) {
  ByteWriter writer;
  writer.put(std::uint32_t{1000}).put(std::uint8_t{'a'});
  ByteReader reader(writer.bytes());
  EXPECT_EQ(reader.get_text(2000), "");
  EXPECT_TRUE(reader.has_failed());
}

TEST(ByteIo, RandomBytesNeverReadOutOfBounds) {
  std::mt19937_64 random(1);
  const int rounds = test::scaled_rounds(20'000, 200'000);
  for (int round = 0; round < rounds; ++round) {
    // A vector of exactly that size: AddressSanitizer sees the first byte too many.
    std::vector<std::byte> bytes(random() % 64);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random() % 8 == 0 ? random() : 0);
    ByteReader reader(bytes);
    std::size_t num_read = 0;
    while (!reader.has_failed() && reader.num_left() > 0) {
      if (random() % 2 == 0) {
        num_read += reader.get_text(1024).size() + sizeof(std::uint32_t);
      } else {
        reader.get<std::uint64_t>();
        num_read += sizeof(std::uint64_t);
      }
    }
    if (!reader.has_failed()) {
      ASSERT_EQ(num_read, bytes.size());
    }
  }
}

}  // namespace
}  // namespace ep::base
