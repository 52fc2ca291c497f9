// SPDX-License-Identifier: Apache-2.0
// A GPU that can hold an arena: what it must have, and its context on threads that are not ours.
#pragma once

#include "fabric/arena_identity.h"
#include "fabric/cuda/driver.h"

#include <ep/status.h>

#include <cuda_runtime_api.h>

#include <cstdint>

namespace ep::fabric {

struct CudaDevice {
  const Driver* driver = nullptr;
  DeviceIdentity identity;
  /// The primary one, as the runtime uses it.
  CUcontext context = nullptr;
  std::int64_t memory_bytes = 0;
};

/// Of the devices that this process sees. Its primary context stays until the process ends, as one
/// does that the runtime has made. Errors: kInvalidArgument for an ordinal that there is not;
/// kUnsupported for a driver or a device that lacks something.
Result<CudaDevice> open_device(int ordinal);

/// Errors: kUnsupported with the numbers, below 8.0.
Status check_compute_capability(int ordinal, int major, int minor);

/// While it lives, CUDA calls of this thread go to the device, and do not disturb another thread's
/// stream capture. Then the thread is as it was: cudaSetDevice() would make a context on the device
/// that it goes back to.
class DeviceScope {
 public:
  explicit DeviceScope(const CudaDevice& device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  const Driver& driver_;
  bool is_pushed_ = false;
  cudaStreamCaptureMode capture_mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace ep::fabric
