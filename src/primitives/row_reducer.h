// SPDX-License-Identifier: Apache-2.0
// The sum of rows: what a reducer of any executor is given.
#pragma once

#include "base/macros.h"
#include "primitives/row_math.h"

#include <ep/dtype.h>

#include <cstddef>
#include <cstdint>

namespace ep::primitives {

/// A token has at most this many experts.
inline constexpr int kMaxTopk = 32;

/// One output row and its terms, in the order of the arithmetic (row_math.h, ReduceRow).
struct RowSum {
  RowTerm terms[kMaxTopk];
  int num_terms = 0;
  std::byte* out = nullptr;
  const std::byte* bias = nullptr;

  EP_HOST_DEVICE void add(const std::byte* row, float weight) {
    terms[num_terms].row = row;
    terms[num_terms].weight = weight;
    terms[num_terms].ends_hop = false;
    ++num_terms;
  }
  /// The terms since the last call cross a link together.
  EP_HOST_DEVICE void end_hop() {
    if (num_terms > 0) terms[num_terms - 1].ends_hop = true;
  }
};

/// What all sums of one operation share.
struct SumSpec {
  std::int64_t num_elems = 0;
  DType dtype = DType::kBf16;
  bool weighted = false;
  /// Terms of one sum: at most.
  int max_terms = kMaxTopk;
  /// Terms of most sums, where they are fewer; 0: max_terms. Only speed depends on it.
  int usual_terms = 0;
};

// size_of() of the reducible dtypes as constants: it is no device function.
inline constexpr int kNarrowElemBytes = size_of(DType::kBf16);
inline constexpr int kWideElemBytes = size_of(DType::kFp32);
static_assert(size_of(DType::kFp16) == kNarrowElemBytes);

/// Elements of a row; precondition: is_reducible(dtype).
EP_HOST_DEVICE constexpr std::int64_t num_elems_of(std::int64_t row_bytes, DType dtype) {
  return row_bytes / (dtype == DType::kFp32 ? kWideElemBytes : kNarrowElemBytes);
}

/// Of one row of the sum.
EP_HOST_DEVICE constexpr std::int64_t row_bytes_of(const SumSpec& spec) {
  return spec.num_elems * (spec.dtype == DType::kFp32 ? kWideElemBytes : kNarrowElemBytes);
}

}  // namespace ep::primitives
