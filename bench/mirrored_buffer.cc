// SPDX-License-Identifier: Apache-2.0
// Copies between both sides.
#include "bench/mirrored_buffer.h"

#include "base/check.h"

namespace ep::bench {

Result<MirroredBuffer> MirroredBuffer::create(Device& device, std::size_t bytes) {
  MirroredBuffer buffer;
  buffer.owner_ = &device;
  buffer.host_ = HostBuffer(bytes);
  EP_TRY_ASSIGN(buffer.memory_, device.allocate(bytes));
  if (buffer.memory_) EP_TRY(buffer.poison());
  return buffer;
}

Status MirroredBuffer::upload() const {
  if (size() == 0) return {};
  return owner_->copy_in(device(), {host(), size()});
}

Status MirroredBuffer::download() const {
  if (size() == 0) return {};
  return owner_->copy_out({host(), size()}, device());
}

Status MirroredBuffer::poison() const {
  if (size() == 0) return {};
  return owner_->fill(device(), HostBuffer::kPoison, size());
}

}  // namespace ep::bench
