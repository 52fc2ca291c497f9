// SPDX-License-Identifier: Apache-2.0
// Checks of arguments: every refusal names the argument, its value and what was needed.
#pragma once

#include "core/group_state.h"
#include "core/rejection.h"
#include "core/routing.h"

#include <ep/moe.h>
#include <ep/status.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ep::core {

/// Why a call is refused: what this rank returns, and the word that its peers see.
struct Refusal {
  Rejection reason;
  Status status;
};

/// Empty: nothing to object to.
using Check = std::optional<Refusal>;

/// kInvalidArgument "argument: text".
Refusal refuse(Rejection reason, const std::string& argument, const std::string& text);

/// First objection in the list.
Check first_of(std::initializer_list<Check> checks);

/// An argument with its name, as it appears in messages.
struct Argument {
  Rejection reason;
  const char* name;
  ConstTensorView view;
};

/// [rows, cols] of the dtype; rows or cols < 0: any.
struct Matrix {
  std::int64_t rows = -1;
  std::int64_t cols = -1;
};
Check check_matrix(const Argument& argument, Matrix wanted);
/// A part of check_matrix(): roles load elements whole, from multiples of their size.
Check check_element_alignment(const Argument& argument);
Check check_dtype(const Argument& argument, DType wanted);

/// Rows that are moved as bytes: contiguous, 16-byte aligned, H * size a multiple of 16 and within
/// the group's maximum.
Check check_rows(const Argument& argument, std::int64_t max_row_bytes);
/// Rows that combine can reduce.
Check check_reducible_rows(const Argument& argument, std::int64_t max_row_bytes);
/// Memory that the group's engine can reach. Costs a call of the driver for what lies outside the
/// arena.
Check check_location(const Argument& argument, const GroupState& state);
/// Rows aligned to 16 bytes where the engine needs that also of a bias and a caller's output.
Check check_sum_alignment(const Argument& argument, const GroupState& state);
/// Elements of a row next to each other.
Check check_unit_stride(const Argument& argument);
/// An output: contiguous rows that do not overlap.
Check check_output_rows(const Argument& argument);

/// An output that shares no byte with the input; a null input passes.
Check check_disjoint(const Argument& output, const ConstTensorView& input);

Check check_topk_idx(const Argument& argument, const GroupState& state, std::int64_t num_tokens);
/// Optional [T, K] fp32.
Check check_topk_weights(const Argument& argument, std::int64_t num_tokens, int topk);
Check check_handle(const DispatchHandle& handle, const GroupState& state);
Check check_num_sms(const std::optional<int>& num_sms, const GroupState& state);
/// Caller-given outputs: from this group, contiguous, one row count, not overlapping.
Check check_buffers(const DispatchBuffers& buffers, const GroupState& state);

/// Bytes of one row.
std::int64_t row_bytes_of(const ConstTensorView& view);
/// The row view of a matrix; all zero for a null view.
intranode::RowInput row_input(const ConstTensorView& view);
intranode::StridedInput strided_input(const ConstTensorView& view);

}  // namespace ep::core
