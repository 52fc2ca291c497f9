// SPDX-License-Identifier: Apache-2.0
// What a build with CUDA adds to the creation of groups; a build without it answers kUnsupported.
#pragma once

#include "base/deadline.h"
#include "core/engine.h"
#include "fabric/arena.h"
#include "fabric/arena_identity.h"

#include <ep/bootstrap.h>
#include <ep/status.h>

#include <cstdint>
#include <memory>

namespace ep::core {

bool has_cuda_backend();

struct CudaEngineParts {
  std::unique_ptr<Engine> engine;
  fabric::DeviceIdentity device;
};

/// For the calling thread's current device; loads all kernels. Errors: kUnsupported (no GPU, one
/// that is too old, a driver that is too old), kCuda.
Result<CudaEngineParts> make_cuda_engine();

/// Collective. Errors as fabric::CudaArena::create.
Result<std::unique_ptr<fabric::Arena>> make_cuda_arena(Bootstrap& bootstrap,
                                                       int device,
                                                       std::int64_t control_bytes,
                                                       base::Deadline deadline);

/// Bytes of device memory that a segment of `bytes` takes.
std::int64_t cuda_segment_bytes(std::int64_t bytes);

}  // namespace ep::core
