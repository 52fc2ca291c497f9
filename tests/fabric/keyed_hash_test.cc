// SPDX-License-Identifier: Apache-2.0
// SHA-256 and HMAC against the vectors of FIPS 180-4 and RFC 4231.
#include "fabric/bootstrap/keyed_hash.h"

#include <gtest/gtest.h>

#include <array>
#include <span>
#include <string>
#include <string_view>

namespace ep::fabric {
namespace {

std::string hex(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (std::byte b : bytes) {
    text.push_back(kDigits[static_cast<std::size_t>(b >> 4)]);
    text.push_back(kDigits[static_cast<std::size_t>(b & std::byte{0xf})]);
  }
  return text;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(Sha256, MatchesPublishedVectors) {
  EXPECT_EQ(hex(sha256({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256(bytes_of("abc"))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256(bytes_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"))),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256(bytes_of(std::string(1'000'000, 'a')))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Hmac, MatchesPublishedVectors) {
  EXPECT_EQ(hex(hmac_sha256(bytes_of(std::string(20, '\x0b')), bytes_of("Hi There"))),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(hmac_sha256(bytes_of("Jefe"), bytes_of("what do ya want for nothing?"))),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  const std::string long_key(131, '\xaa');
  EXPECT_EQ(hex(hmac_sha256(bytes_of(long_key),
                            bytes_of("Test Using Larger Than Block-Size Key - Hash Key First"))),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Hmac, ComparesWholeDigests) {
  EXPECT_TRUE(equal_in_constant_time(bytes_of("abc"), bytes_of("abc")));
  EXPECT_FALSE(equal_in_constant_time(bytes_of("abc"), bytes_of("abd")));
  EXPECT_FALSE(equal_in_constant_time(bytes_of("abc"), bytes_of("xbc")));
  EXPECT_FALSE(equal_in_constant_time(bytes_of("abc"), bytes_of("ab")));
}

TEST(Random, DiffersFromCallToCall) {
  std::array<std::byte, 16> first{};
  std::array<std::byte, 16> second{};
  fill_random(first);
  fill_random(second);
  EXPECT_NE(first, second);
}

}  // namespace
}  // namespace ep::fabric
