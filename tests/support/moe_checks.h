// SPDX-License-Identifier: Apache-2.0
// Compares what the library returned with the oracle, byte by byte; an empty string means right.
#pragma once

#include "tests/support/oracle.h"
#include "tests/support/row_values.h"

#include <ep/moe.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace ep::test {

/// The bytes of a contiguous tensor.
std::span<std::byte> bytes_of(const TensorView& view);

struct DispatchCheck {
  std::int64_t row_step = 1;   ///< every how many rows are looked at; the last ones always
  bool has_topk_idx = true;    ///< kFlat: false for what returns no topk_idx
  bool is_x_expanded = false;  ///< every row of x is the row of token 0
};

/// Everything in `output`: shapes, sizes, counts, offsets, rows, scales, topk_idx, topk_weights,
/// padding, handle.
std::string check_dispatch(const Oracle& oracle,
                           int rank,
                           const DispatchOutput& output,
                           const DispatchCheck& check = {});

/// Every row bitwise, and within half an ulp per hop of fp64 unless the values are special.
std::string check_combine(const Oracle& oracle,
                          const CombineProblem& combine,
                          int rank,
                          const TensorView& out,
                          std::int64_t token_step = 1);

/// Every (token, k): the value that `side` has at the choice's row, 0 where there is no row.
std::string check_router_gradient(const Oracle& oracle,
                                  int rank,
                                  const TensorView& gradient,
                                  const std::function<float(const RowPlace& place)>& expected);

/// The gradient of the experts' rows: the token's row of `grad_out`, scaled if the combine is
/// weighted; zeros in padding.
std::string check_row_gradient(const Oracle& oracle,
                               const CombineProblem& combine,
                               const RowValues& grad_out,
                               int rank,
                               const TensorView& grad_rows);

}  // namespace ep::test
