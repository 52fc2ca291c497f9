// SPDX-License-Identifier: Apache-2.0
// Copies the sizes first: they say how many rows are in use.
#include "bench/received_image.h"

#include "base/check.h"

#include <algorithm>
#include <limits>

namespace ep::bench {
namespace {

constexpr std::int64_t kAllRows = std::numeric_limits<std::int64_t>::max();

}  // namespace

Result<Tensor> ReceivedImage::copy(Device& device, const Tensor& tensor, std::int64_t max_rows) {
  TensorView view = tensor.view();
  HostBuffer& buffer = buffers_[num_used_++];
  if (view.is_null()) return Tensor();
  view.shape[0] = std::min(view.size(0), max_rows);
  const auto bytes = static_cast<std::size_t>(view.num_elems() * size_of(view.dtype));
  if (buffer.get() == nullptr || buffer.size() < bytes) buffer = HostBuffer(bytes);
  if (bytes > 0) {
    EP_TRY(device.copy_out({buffer.get(), bytes}, static_cast<const std::byte*>(view.data)));
  }
  view.data = buffer.get();
  return Tensor(view, nullptr);
}

Status ReceivedImage::take(Device& device, const DispatchOutput& received) {
  output_ = received;
  num_used_ = 0;
  if (device.is_host()) return {};
  EP_TRY_ASSIGN(output_.sizes, copy(device, received.sizes, kAllRows));
  const std::int64_t num_rows = std::max<std::int64_t>(*output_.sizes.data<std::int64_t>(), 0);
  EP_TRY_ASSIGN(output_.x, copy(device, received.x, num_rows));
  EP_TRY_ASSIGN(output_.scales, copy(device, received.scales, num_rows));
  EP_TRY_ASSIGN(output_.topk_idx, copy(device, received.topk_idx, num_rows));
  EP_TRY_ASSIGN(output_.topk_weights, copy(device, received.topk_weights, num_rows));
  EP_TRY_ASSIGN(output_.expert_counts, copy(device, received.expert_counts, kAllRows));
  EP_TRY_ASSIGN(output_.expert_offsets, copy(device, received.expert_offsets, kAllRows));
  return {};
}

}  // namespace ep::bench
