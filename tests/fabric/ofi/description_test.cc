// SPDX-License-Identifier: Apache-2.0
// What ranks tell each other survives the way, and whatever arrives is harmless.
#include "fabric/ofi/description.h"

#include "base/byte_io.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace ep::fabric {
namespace {

using Bytes = std::vector<std::byte>;

EndpointDescription sample() {
  return {.provider = "net",
          .protocol = 25,
          .protocol_version = 3,
          .address_format = 2,
          .is_ordered = true,
          .addresses = {Bytes(16, std::byte{7}), Bytes(16, std::byte{8})}};
}

WindowDescription sample_window() { return {.base = 1 << 20, .bytes = 4096, .keys = {17, 18}}; }

TEST(OfiDescription, ComesBackAsItWas) {
  const auto decoded = decode_description(3, encode(sample()));
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  EXPECT_TRUE(check_match(sample(), 3, *decoded).ok());
  EXPECT_EQ(decoded->addresses, sample().addresses);
  const auto window = decode_window(encode(sample_window()));
  ASSERT_TRUE(window.ok());
  EXPECT_EQ(window->base, sample_window().base);
  EXPECT_EQ(window->bytes, sample_window().bytes);
  EXPECT_EQ(window->keys, sample_window().keys);
}

TEST(OfiDescription, EveryTruncationIsRefusedWithTheRank) {
  const Bytes whole = encode(sample());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto decoded = decode_description(3, std::span(whole).first(size));
    ASSERT_EQ(decoded.status().code(), Errc::kFabric) << size;
    EXPECT_EQ(decoded.status().peer(), 3);
  }
  const Bytes window = encode(sample_window());
  for (std::size_t size = 0; size < window.size(); ++size) {
    EXPECT_EQ(decode_window(std::span(window).first(size)).status().code(), Errc::kFabric);
  }
}

TEST(OfiDescription, ARefusalComesBackAsTheErrorOfItsRank) {
  const Status status(Errc::kUnsupported, "ofi: nothing here");
  const auto decoded = decode_description(2, encode_refusal(status));
  EXPECT_EQ(decoded.status().code(), Errc::kUnsupported);
  EXPECT_EQ(decoded.status().peer(), 2);
  EXPECT_EQ(decoded.status().message(), "rank 2: ofi: nothing here");
}

TEST(OfiDescription, EachDifferenceIsRefused) {
  const auto differs = [](auto change) {
    EndpointDescription other = sample();
    change(other);
    const Status status = check_match(sample(), 1, other);
    return status.code() == Errc::kInvalidArgument && status.peer() == 1;
  };
  EXPECT_TRUE(differs([](auto& other) { other.provider = "tcp"; }));
  EXPECT_TRUE(differs([](auto& other) { other.protocol = 1; }));
  EXPECT_TRUE(differs([](auto& other) { other.protocol_version = 1; }));
  EXPECT_TRUE(differs([](auto& other) { other.address_format = 3; }));
  EXPECT_TRUE(differs([](auto& other) { other.is_ordered = false; }));
  EXPECT_TRUE(differs([](auto& other) { other.addresses.pop_back(); }));
  EXPECT_TRUE(differs([](auto& other) { other.addresses[1].resize(28); }));
}

TEST(OfiDescription, AWindowThatWrapsIsRefused) {
  EXPECT_FALSE(decode_window(encode({.base = ~std::uint64_t{0}, .bytes = 2, .keys = {1}})).ok());
  EXPECT_FALSE(decode_window(encode({.base = 0, .bytes = -1, .keys = {1}})).ok());
  EXPECT_FALSE(decode_window(encode({.base = 0, .bytes = 8, .keys = {}})).ok());
  EXPECT_TRUE(decode_window(encode({.base = ~std::uint64_t{0} - 2, .bytes = 2, .keys = {1}})).ok());
}

TEST(OfiDescription, ChangedBytesAreDecodedOrRefusedButNeverBelieved) {
  std::mt19937 random(5);
  const Bytes endpoints = encode(sample());
  const Bytes window = encode(sample_window());
  const int num_rounds = test::scaled_rounds(20'000, 1'000'000);
  for (int round = 0; round < num_rounds; ++round) {
    Bytes bytes = round % 2 == 0 ? endpoints : window;
    for (int change = 0; change < 3; ++change) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    bytes.resize(random() % 4 == 0 ? random() % (bytes.size() + 1) : bytes.size());
    if (const auto decoded = decode_description(1, bytes); decoded.ok()) {
      EXPECT_FALSE(decoded->addresses.empty());
      // Whatever it is, comparing it is safe.
      EXPECT_NE(check_match(sample(), 1, *decoded).code(), Errc::kInternal);
    }
    if (const auto decoded = decode_window(bytes); decoded.ok()) {
      EXPECT_GE(decoded->bytes, 0);
    }
  }
}

}  // namespace
}  // namespace ep::fabric
