// SPDX-License-Identifier: Apache-2.0
// FNV-1a against its published values.
#include "base/hash.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <span>

namespace ep::base {
namespace {

TEST(Hash, MatchesThePublishedValues) {
  EXPECT_EQ(fnv1a_32(""), 0x811c9dc5u);
  EXPECT_EQ(fnv1a_32("a"), 0xe40c292cu);
  EXPECT_EQ(fnv1a_32("foobar"), 0xbf9cf968u);
  EXPECT_EQ(fnv1a_64(""), 0xcbf29ce484222325u);
  EXPECT_EQ(fnv1a_64("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(fnv1a_64("foobar"), 0x85944171f73967e8u);
}

TEST(Hash, BytesHashAsTheSameText) {
  constexpr std::array kBytes = {std::byte{'f'}, std::byte{'o'}, std::byte{0xff}};
  EXPECT_EQ(fnv1a_32(std::span<const std::byte>(kBytes)), fnv1a_32("fo\xff"));
  EXPECT_EQ(fnv1a_64(std::span<const std::byte>(kBytes)), fnv1a_64("fo\xff"));
}

TEST(Hash, Chains) {
  EXPECT_EQ(fnv1a_64("bar", fnv1a_64("foo")), fnv1a_64("foobar"));
  EXPECT_EQ(fnv1a_32(std::uint64_t{'a'}, kFnv32Basis),
            fnv1a_32(std::string_view("a\0\0\0\0\0\0\0", 8)));
}

}  // namespace
}  // namespace ep::base
