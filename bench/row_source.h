// SPDX-License-Identifier: Apache-2.0
// The rows that ranks dispatch: any rank computes any row of any rank from its key.
#pragma once

#include "bench/number.h"

#include <ep/dtype.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ep::bench {

/// Leading elements of a row that name its token; the others are made of the token's content.
inline constexpr std::int64_t kNameElems = 8;

/// What one row is made of. Rows of the same word differ in their first kNameElems elements only.
struct RowKey {
  std::uint64_t content = 0;  ///< the word, or the token itself
  std::uint64_t name = 0;     ///< differs for every (step, rank, token)
};

struct RowFormat {
  DType dtype = DType::kBf16;
  std::int64_t hidden = 0;
  /// Small integers, so that every sum of the layer is exact in the type.
  bool exact = false;

  std::size_t row_bytes() const { return static_cast<std::size_t>(hidden * size_of(dtype)); }
  std::size_t num_scales() const { return static_cast<std::size_t>(num_scales_of(dtype, hidden)); }
};

/// Largest magnitude of an element where `exact`.
inline constexpr int kMaxExactElem = 2;

class RowSource {
 public:
  explicit RowSource(const RowFormat& format);

  const RowFormat& format() const { return format_; }

  /// Writes row_bytes() bytes and num_scales() scales. Random bits in [1/16, 1) and both signs, or
  /// integers in [-kMaxExactElem, kMaxExactElem]. Not thread-safe: quantising uses scratch space.
  void fill(const RowKey& key, std::span<std::byte> row, std::span<float> scales);

 private:
  void fill_exact(const RowKey& key, std::span<std::byte> row, std::span<float> scales);

  RowFormat format_;
  std::vector<float> wide_;
};

}  // namespace ep::bench
