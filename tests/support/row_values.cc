// SPDX-License-Identifier: Apache-2.0
// Numbers that experts return and gradients that flow back: any row can be computed by any rank.
#include "tests/support/row_values.h"

#include "tests/support/number_formats.h"
#include "tests/support/payload.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace ep::test {
namespace {

enum class Domain : std::uint64_t { kExpertRow = 1, kTokenRow, kSide };

std::uint64_t key_of(
    std::uint64_t seed, Domain domain, std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  std::uint64_t key = mix64(seed + static_cast<std::uint64_t>(domain));
  key = mix64(key ^ a);
  key = mix64(key ^ b);
  return mix64(key ^ c);
}

// A float with a 7-bit fraction, exact in all three types: 1.f * 2^exponent, exponent from -9 to 3.
float mixed_value(std::uint64_t random) {
  constexpr int kFractionBits = 7;
  constexpr int kFractionShift = 16;
  constexpr std::uint64_t kNumExponents = 13;
  constexpr std::uint64_t kSmallestExponent = 127 - 9;
  const std::uint64_t fraction = (random & ((1U << kFractionBits) - 1)) << kFractionShift;
  const std::uint64_t exponent = kSmallestExponent + (random >> 8) % kNumExponents;
  const std::uint64_t sign = (random >> 63) << 31;
  return std::bit_cast<float>(static_cast<std::uint32_t>(sign | (exponent << 23) | fraction));
}

float special_value(std::uint64_t random) {
  constexpr std::array<float, 8> kSpecials{0.0F,
                                           -0.0F,
                                           std::numeric_limits<float>::infinity(),
                                           -std::numeric_limits<float>::infinity(),
                                           std::numeric_limits<float>::quiet_NaN(),
                                           0x1p-24F,    // subnormal in fp16
                                           -0x1p-130F,  // subnormal in bf16 and fp32, zero in fp16
                                           65504.0F};
  return kSpecials[random % kSpecials.size()];
}

}  // namespace

float RowValues::value(std::uint64_t key, std::int64_t elem) const {
  const std::uint64_t random = mix64(key + static_cast<std::uint64_t>(elem));
  constexpr std::uint64_t kOneIn = 16;
  switch (kind) {
    case ValueKind::kBits:
      return static_cast<float>(random & 1);
    case ValueKind::kMixed:
      return mixed_value(random);
    case ValueKind::kSpecial:
      return (random >> 32) % kOneIn == 0 ? special_value(random) : mixed_value(random);
  }
  return 0.0F;
}

void RowValues::fill(std::uint64_t key, std::span<std::byte> bytes) const {
  const auto elem_bytes = static_cast<std::size_t>(size_of(dtype));
  std::int64_t elem = 0;
  for (std::size_t at = 0; at < bytes.size(); at += elem_bytes)
    narrow(dtype, value(key, elem++), bytes.data() + at);
}

void RowValues::fill_expert_row(int owner,
                                const ExpectedRow& row,
                                std::span<std::byte> bytes) const {
  // A flat row is known by its rank, an expert-major row by its expert.
  const std::uint64_t place =
      row.expert < 0 ? static_cast<std::uint64_t>(owner)
                     : (std::uint64_t{1} << 32) + static_cast<std::uint64_t>(row.expert);
  fill(key_of(seed, Domain::kExpertRow, place, static_cast<std::uint64_t>(row.src_rank),
              static_cast<std::uint64_t>(row.token)),
       bytes);
}

void RowValues::fill_token_row(int src_rank, std::int64_t token, std::span<std::byte> bytes) const {
  fill(key_of(seed, Domain::kTokenRow, static_cast<std::uint64_t>(src_rank),
              static_cast<std::uint64_t>(token), 0),
       bytes);
}

float RowValues::side_value(int owner, std::int64_t row, int k) const {
  return mixed_value(mix64(key_of(seed, Domain::kSide, static_cast<std::uint64_t>(owner),
                                  static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(k))));
}

}  // namespace ep::test
