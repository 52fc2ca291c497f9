// SPDX-License-Identifier: Apache-2.0
// One rank's dispatch inputs with coded payload, in memory laid out as a test asks.
#pragma once

#include "tests/support/problem.h"

#include <ep/moe.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ep::test {

/// How the caller's tensors lie in memory.
struct InputStrides {
  std::int64_t row_gap_bytes = 0;    ///< behind each row of x; a multiple of 16
  std::int64_t first_row_bytes = 0;  ///< before the first row of x; a multiple of 16
  bool is_x_expanded = false;        ///< all rows of x are the row of token 0, at stride 0
  bool is_topk_transposed = false;   ///< topk_idx and topk_weights stored as [K, T]
  std::int64_t topk_gap_elems = 0;   ///< behind each stored row of topk_idx and topk_weights
};

class RankInputs {
 public:
  RankInputs(const Problem& problem, int rank, const InputStrides& strides = {});

  /// Valid as long as this object lives.
  DispatchInput views() const;
  /// [T, K], also where the problem dispatches no weights.
  ConstTensorView topk_weights() const;
  /// What a caller may do with the inputs once the call returned.
  void overwrite();

 private:
  ConstTensorView topk_view(const std::byte* elements, DType dtype) const;
  std::int64_t topk_position(std::int64_t token, int k) const;
  void fill_rows();
  void fill_topk();
  std::int64_t x_stride_bytes() const;

  const Problem& problem_;
  int rank_;
  InputStrides strides_;
  std::int64_t num_tokens_;
  std::vector<std::byte> x_;
  std::vector<std::byte> scales_;
  std::vector<std::byte> topk_idx_;
  std::vector<std::byte> topk_weights_;
};

}  // namespace ep::test
