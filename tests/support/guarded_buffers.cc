// SPDX-License-Identifier: Apache-2.0
// Outputs that a caller gives to dispatch: poisoned, with canaries before and behind in the same
// blocks.
#include "tests/support/guarded_buffers.h"

#include "tests/support/payload.h"

#include <cstddef>
#include <cstring>
#include <span>

namespace ep::test {
namespace {

// A multiple of every alignment that the library asks of an output.
constexpr std::int64_t kGuardBytes = 4096;

std::size_t to_size(std::int64_t value) { return static_cast<std::size_t>(value); }

std::int64_t bytes_of_view(const TensorView& view) {
  return view.num_elems() * size_of(view.dtype);
}

}  // namespace

Status GuardedBuffers::add(Group& group, const char* name, const TensorView& shape) {
  const std::int64_t bytes = bytes_of_view(shape);
  auto block = group.allocate(DType::kUInt8, {bytes + 2 * kGuardBytes});
  if (!block.ok()) return block.status();
  auto* memory = block->data<std::byte>();
  fill_canary({memory, to_size(bytes + 2 * kGuardBytes)});
  TensorView rows = shape;
  rows.data = memory + kGuardBytes;
  const std::int64_t row_bytes = shape.size(0) == 0 ? 0 : bytes / shape.size(0);
  outputs_.push_back({name, *block, Tensor(rows, block->storage()), row_bytes});
  return {};
}

Result<GuardedBuffers> GuardedBuffers::create(Group& group,
                                              const Problem& problem,
                                              std::int64_t capacity) {
  GuardedBuffers buffers;
  const bool is_flat = problem.layout == Layout::kFlat;
  const int topk = problem.routing.topk;
  Status status =
      buffers.add(group, "x", TensorView(nullptr, problem.dtype, {capacity, problem.hidden}));
  if (status.ok() && problem.num_scales > 0) {
    status = buffers.add(group, "scales",
                         TensorView(nullptr, problem.scale_dtype, {capacity, problem.num_scales}));
  }
  if (status.ok() && is_flat) {
    status =
        buffers.add(group, "topk_idx", TensorView(nullptr, problem.idx_dtype, {capacity, topk}));
  }
  if (status.ok() && problem.has_weights) {
    const TensorView flat(nullptr, DType::kFp32, {capacity, topk});
    const TensorView expert_major(nullptr, DType::kFp32, {capacity});
    status = buffers.add(group, "topk_weights", is_flat ? flat : expert_major);
  }
  if (!status.ok()) return status;
  return buffers;
}

Tensor GuardedBuffers::find(const char* name) const {
  for (const Output& output : outputs_) {
    if (std::strcmp(output.name, name) == 0) return output.rows;
  }
  return {};
}

DispatchBuffers GuardedBuffers::tensors() const {
  DispatchBuffers buffers;
  buffers.x = find("x");
  buffers.scales = find("scales");
  buffers.topk_idx = find("topk_idx");
  buffers.topk_weights = find("topk_weights");
  return buffers;
}

std::string GuardedBuffers::broken_guard(std::int64_t num_rows) const {
  for (const Output& output : outputs_) {
    const std::span<const std::byte> all(output.block.data<std::byte>(),
                                         to_size(bytes_of_view(output.block.view())));
    if (const auto at = first_broken(all.first(to_size(kGuardBytes)))) {
      return std::string(output.name) + ": byte " + std::to_string(kGuardBytes - *at) +
             " before it was written";
    }
    const auto behind = to_size(kGuardBytes + num_rows * output.row_bytes);
    if (const auto at = first_broken(all.subspan(behind))) {
      return std::string(output.name) + ": byte " + std::to_string(*at) + " behind row " +
             std::to_string(num_rows) + " was written";
    }
  }
  return "";
}

}  // namespace ep::test
