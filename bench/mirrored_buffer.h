// SPDX-License-Identifier: Apache-2.0
// Memory of an operation with a copy that the processor can read; on the host both are one.
#pragma once

#include "bench/device.h"
#include "bench/host_buffer.h"

#include <ep/status.h>

#include <cstddef>
#include <memory>
#include <span>

namespace ep::bench {

class MirroredBuffer {
 public:
  MirroredBuffer() = default;
  /// Both sides are poisoned. Errors as Device::allocate. `device` outlives the buffer.
  static Result<MirroredBuffer> create(Device& device, std::size_t bytes);

  bool is_null() const { return host_.get() == nullptr; }
  std::size_t size() const { return host_.size(); }
  std::byte* host() const { return host_.get(); }
  /// What operations get.
  std::byte* device() const { return memory_ ? memory_.get() : host_.get(); }
  template <class T>
  std::span<T> as() const {
    return host_.as<T>();
  }

  Status upload() const;
  Status download() const;
  /// The device's side.
  Status poison() const;

 private:
  Device* owner_ = nullptr;
  HostBuffer host_;
  std::shared_ptr<std::byte> memory_;
};

}  // namespace ep::bench
