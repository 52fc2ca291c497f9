// SPDX-License-Identifier: Apache-2.0
// Numbers that experts return and gradients that flow back: any row can be computed by any rank.
#pragma once

#include "tests/support/oracle.h"

#include <ep/dtype.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace ep::test {

enum class ValueKind : std::uint8_t {
  kBits,     ///< 0 or 1: sums are exact in every type
  kMixed,    ///< magnitudes from 2^-9 to 2^3, both signs: every rounding shows
  kSpecial,  ///< kMixed with zeros of both signs, infinities, NaNs and subnormals
};

struct RowValues {
  ValueKind kind = ValueKind::kMixed;
  DType dtype = DType::kBf16;
  std::uint64_t seed = 1;

  /// The row that `owner` returns for one of its received rows.
  void fill_expert_row(int owner, const ExpectedRow& row, std::span<std::byte> bytes) const;
  /// A row that belongs to a token at its own rank: a bias or the gradient of an output.
  void fill_token_row(int src_rank, std::int64_t token, std::span<std::byte> bytes) const;
  /// An fp32 gradient that belongs to choice k of a received row; k = 0 in kExpertMajor.
  float side_value(int owner, std::int64_t row, int k) const;

 private:
  float value(std::uint64_t key, std::int64_t elem) const;
  void fill(std::uint64_t key, std::span<std::byte> bytes) const;
};

}  // namespace ep::test
