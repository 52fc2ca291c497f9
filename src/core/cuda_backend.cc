// SPDX-License-Identifier: Apache-2.0
// The CUDA backend: arena and engine of a GPU.
#include "core/cuda_backend.h"

#include "base/check.h"
#include "core/cuda_engine.h"
#include "fabric/cuda/arena.h"
#include "fabric/cuda/device.h"

#include <utility>

namespace ep::core {

bool has_cuda_backend() { return true; }

Result<CudaEngineParts> make_cuda_engine() {
  EP_TRY_ASSIGN(const int device, current_cuda_device());
  EP_TRY_ASSIGN(std::unique_ptr<Engine> engine, create_cuda_engine(device));
  EP_TRY_ASSIGN(const fabric::CudaDevice opened, fabric::open_device(device));
  return CudaEngineParts{.engine = std::move(engine), .device = opened.identity};
}

Result<std::unique_ptr<fabric::Arena>> make_cuda_arena(Bootstrap& bootstrap,
                                                       int device,
                                                       std::int64_t control_bytes,
                                                       base::Deadline deadline) {
  EP_TRY_ASSIGN(std::unique_ptr<fabric::CudaArena> arena,
                fabric::CudaArena::create(bootstrap, device, control_bytes, deadline));
  return std::unique_ptr<fabric::Arena>(std::move(arena));
}

std::int64_t cuda_segment_bytes(std::int64_t bytes) {
  return fabric::CudaArena::segment_bytes(bytes);
}

}  // namespace ep::core
