// SPDX-License-Identifier: Apache-2.0
// Checks of arguments.
#include "core/call_checks.h"

#include "primitives/row_reducer.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace ep::core {
namespace {

constexpr std::int64_t kRowAlignment = 16;

bool is_aligned(const void* pointer, std::int64_t alignment = kRowAlignment) {
  return reinterpret_cast<std::uintptr_t>(pointer) % static_cast<std::uintptr_t>(alignment) == 0;
}

/// Address range that a view touches; empty for no elements.
struct Extent {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;

  bool overlaps(const Extent& other) const { return begin < other.end && other.begin < end; }
};

Extent extent_of(const ConstTensorView& view) {
  if (view.num_elems() == 0) return {};
  std::int64_t last = 0;
  for (int dim = 0; dim < view.num_dims; ++dim) last += (view.size(dim) - 1) * view.stride(dim);
  const auto* begin = static_cast<const std::byte*>(view.data);
  return {begin, begin + (last + 1) * size_of(view.dtype)};
}

Check check_row_alignment(const Argument& argument) {
  const ConstTensorView& view = argument.view;
  const std::int64_t stride_bytes = view.stride(0) * size_of(view.dtype);
  if (view.size(0) > 0 && !is_aligned(view.data)) {
    return refuse(argument.reason, argument.name,
                  to_string(view) + ": data is not aligned to 16 bytes");
  }
  if (view.size(0) > 1 && stride_bytes % kRowAlignment != 0) {
    return refuse(argument.reason, argument.name,
                  to_string(view) + ": rows are " + std::to_string(stride_bytes) +
                      " bytes apart, which is not a multiple of 16");
  }
  return {};
}

Check check_buffer(const char* name, const Tensor& tensor, const GroupState& state) {
  if (!tensor) return {};
  const TensorView& view = tensor.view();
  std::int64_t stride = 1;
  for (int dim = view.num_dims - 1; dim >= 0; --dim) {
    if (view.size(dim) > 1 && view.stride(dim) != stride) {
      return refuse(Rejection::kOutputs, name, to_string(view) + " is not contiguous");
    }
    stride *= view.size(dim);
  }
  // Peers are told where it lies in units of 16 bytes.
  if (view.num_elems() > 0 && !is_aligned(view.data)) {
    return refuse(Rejection::kOutputs, name, to_string(view) + ": data is not aligned to 16 bytes");
  }
  const std::int64_t bytes = view.num_elems() * size_of(view.dtype);
  if (!state.pool().locate(view.data, bytes)) {
    return refuse(Rejection::kOutputs, name, to_string(view) + " was not allocated by this group");
  }
  return {};
}

}  // namespace

Refusal refuse(Rejection reason, const std::string& argument, const std::string& text) {
  return {reason, Status(Errc::kInvalidArgument, argument + ": " + text)};
}

Check first_of(std::initializer_list<Check> checks) {
  for (const Check& check : checks) {
    if (check) return check;
  }
  return {};
}

Check check_matrix(const Argument& argument, Matrix wanted) {
  const ConstTensorView& view = argument.view;
  if (view.is_null()) return refuse(argument.reason, argument.name, "is null");
  if (view.num_dims != 2)
    return refuse(argument.reason, argument.name, to_string(view) + " needs 2 dimensions");
  for (int dim = 0; dim < 2; ++dim) {
    const std::int64_t size = dim == 0 ? wanted.rows : wanted.cols;
    if (view.size(dim) < 0 || (size >= 0 && view.size(dim) != size)) {
      return refuse(argument.reason, argument.name,
                    to_string(view) + ": dimension " + std::to_string(dim) + " must be " +
                        std::to_string(size));
    }
    if (view.stride(dim) < 0) {
      return refuse(argument.reason, argument.name,
                    to_string(view) + ": stride " + std::to_string(view.stride(dim)) +
                        " of dimension " + std::to_string(dim) + " is negative");
    }
  }
  if (view.data == nullptr && view.num_elems() > 0) {
    return refuse(argument.reason, argument.name, to_string(view) + " has no data");
  }
  return check_element_alignment(argument);
}

Check check_element_alignment(const Argument& argument) {
  const ConstTensorView& view = argument.view;
  const std::int64_t bytes = size_of(view.dtype);
  if (view.num_elems() == 0 || is_aligned(view.data, bytes)) return {};
  return refuse(argument.reason, argument.name,
                to_string(view) + ": data is not aligned to its elements of " +
                    std::to_string(bytes) + " bytes");
}

Check check_dtype(const Argument& argument, DType wanted) {
  if (argument.view.dtype == wanted) return {};
  return refuse(
      argument.reason, argument.name,
      std::string("dtype is ") + name_of(argument.view.dtype) + ", need " + name_of(wanted));
}

Check check_unit_stride(const Argument& argument) {
  const ConstTensorView& view = argument.view;
  if (view.size(1) <= 1 || view.stride(1) == 1) return {};
  return refuse(argument.reason, argument.name,
                to_string(view) + ": elements of a row must be adjacent, but stride(1) = " +
                    std::to_string(view.stride(1)));
}

Check check_rows(const Argument& argument, std::int64_t max_row_bytes) {
  if (Check check = check_matrix(argument, {})) return check;
  const ConstTensorView& view = argument.view;
  if (view.dtype == DType::kInt32 || view.dtype == DType::kInt64) {
    return refuse(argument.reason, argument.name,
                  std::string("dtype ") + name_of(view.dtype) + " is not a row type");
  }
  if (Check check = check_unit_stride(argument)) return check;
  const std::int64_t bytes = row_bytes_of(view);
  if (bytes == 0 || bytes % kRowAlignment != 0) {
    return refuse(argument.reason, argument.name,
                  to_string(view) + ": H * size = " + std::to_string(bytes) +
                      " bytes is not a multiple of 16");
  }
  if (bytes > max_row_bytes) {
    return refuse(argument.reason, argument.name,
                  to_string(view) + ": a row has " + std::to_string(bytes) +
                      " bytes, but max_hidden_bytes = " + std::to_string(max_row_bytes));
  }
  return check_row_alignment(argument);
}

Check check_sum_alignment(const Argument& argument, const GroupState& state) {
  if (!state.engine().needs_aligned_sums() || argument.view.is_null()) return {};
  return check_row_alignment(argument);
}

Check check_location(const Argument& argument, const GroupState& state) {
  const ConstTensorView& view = argument.view;
  if (state.engine().is_synchronous() || view.is_null() || view.num_elems() == 0) return {};
  if (state.pool().locate(view.data, 1)) return {};
  const Status status = state.engine().check_memory(view.data);
  if (status.ok()) return {};
  return Refusal{argument.reason,
                 Status(status.code(), std::string(argument.name) + ": " + to_string(view) + " " +
                                           status.message())};
}

Check check_reducible_rows(const Argument& argument, std::int64_t max_row_bytes) {
  if (Check check = check_rows(argument, max_row_bytes)) return check;
  if (is_reducible(argument.view.dtype)) return {};
  return refuse(
      argument.reason, argument.name,
      std::string("dtype is ") + name_of(argument.view.dtype) + ", need bf16, fp16 or fp32");
}

Check check_output_rows(const Argument& argument) {
  const ConstTensorView& view = argument.view;
  if (view.size(0) > 1 && view.stride(0) < view.size(1)) {
    return refuse(argument.reason, argument.name,
                  to_string(view) + ": rows overlap, stride(0) = " +
                      std::to_string(view.stride(0)) + " < " + std::to_string(view.size(1)));
  }
  return {};
}

Check check_disjoint(const Argument& output, const ConstTensorView& input) {
  if (input.is_null() || !extent_of(output.view).overlaps(extent_of(input))) return {};
  return refuse(output.reason, output.name, to_string(output.view) + " overlaps an input");
}

Check check_topk_idx(const Argument& argument, const GroupState& state, std::int64_t num_tokens) {
  if (Check check = check_matrix(argument, {.rows = num_tokens})) return check;
  const ConstTensorView& view = argument.view;
  if (view.dtype != DType::kInt32 && view.dtype != DType::kInt64) {
    return refuse(argument.reason, argument.name,
                  std::string("dtype is ") + name_of(view.dtype) + ", need int32 or int64");
  }
  const std::int64_t max_topk = state.config().max_topk;
  if (view.size(1) < 1 || view.size(1) > max_topk) {
    return refuse(argument.reason, argument.name,
                  to_string(view) + ": K = " + std::to_string(view.size(1)) +
                      ", need 1 to max_topk = " + std::to_string(max_topk));
  }
  return {};
}

Check check_topk_weights(const Argument& argument, std::int64_t num_tokens, int topk) {
  if (argument.view.is_null()) return {};
  if (Check check = check_matrix(argument, {num_tokens, topk})) return check;
  return check_dtype(argument, DType::kFp32);
}

Check check_handle(const DispatchHandle& handle, const GroupState& state) {
  if (handle.is_null()) return refuse(Rejection::kHandle, "handle", "is null");
  if (handle.routing().belongs_to(state)) return {};
  return refuse(Rejection::kHandle, "handle", "belongs to another group");
}

Check check_num_sms(const std::optional<int>& num_sms, const GroupState& state) {
  const Status status = state.check_num_sms(num_sms);
  if (status.ok()) return {};
  return refuse(Rejection::kNumSms, "num_sms", status.message());
}

Check check_buffers(const DispatchBuffers& buffers, const GroupState& state) {
  const std::array<std::pair<const char*, const Tensor*>, 4> all = {
      {{"out.x", &buffers.x},
       {"out.scales", &buffers.scales},
       {"out.topk_idx", &buffers.topk_idx},
       {"out.topk_weights", &buffers.topk_weights}}};
  std::optional<std::int64_t> num_rows;
  for (const auto& [name, tensor] : all) {
    if (!*tensor) continue;
    if (Check check = check_buffer(name, *tensor, state)) return check;
    const TensorView& view = tensor->view();
    if (num_rows && *num_rows != view.size(0)) {
      return refuse(
          Rejection::kOutputs, name,
          to_string(view) + ": another output has " + std::to_string(*num_rows) + " rows");
    }
    num_rows = view.size(0);
    for (const auto& [other_name, other] : all) {
      if (other == tensor || !*other) continue;
      if (extent_of(view).overlaps(extent_of(other->view()))) {
        return refuse(Rejection::kOutputs, name, std::string("overlaps ") + other_name);
      }
    }
  }
  return {};
}

std::int64_t row_bytes_of(const ConstTensorView& view) {
  return view.is_null() ? 0 : view.size(1) * size_of(view.dtype);
}

intranode::RowInput row_input(const ConstTensorView& view) {
  return {.data = static_cast<const std::byte*>(view.data),
          .stride_bytes = view.is_null() ? 0 : view.stride(0) * size_of(view.dtype),
          .row_bytes = row_bytes_of(view)};
}

intranode::StridedInput strided_input(const ConstTensorView& view) {
  return {.data = view.data, .row_stride = view.stride(0), .col_stride = view.stride(1)};
}

}  // namespace ep::core
