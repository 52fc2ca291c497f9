// SPDX-License-Identifier: Apache-2.0
// What a dispatch delivered, in memory that the processor can read.
#pragma once

#include "bench/device.h"
#include "bench/host_buffer.h"

#include <ep/moe.h>
#include <ep/status.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace ep::bench {

class ReceivedImage {
 public:
  /// Copies what is in use of `received`; on the host it only refers to it. The image before is
  /// overwritten. `received` must live as long as the image is read.
  Status take(Device& device, const DispatchOutput& received);
  /// Lets go of what it refers to.
  void clear() { output_ = {}; }

  /// Tensors without storage. Rows of unused capacity are left out.
  const DispatchOutput& output() const { return output_; }

 private:
  static constexpr std::size_t kNumTensors = 7;

  Result<Tensor> copy(Device& device, const Tensor& tensor, std::int64_t max_rows);

  DispatchOutput output_;
  std::array<HostBuffer, kNumTensors> buffers_;  // grow and stay: touching memory takes long
  std::size_t num_used_ = 0;
};

}  // namespace ep::bench
