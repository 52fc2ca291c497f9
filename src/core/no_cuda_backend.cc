// SPDX-License-Identifier: Apache-2.0
// The CUDA backend of a build without CUDA.
#include "core/cuda_backend.h"

namespace ep::core {
namespace {

Status unsupported() {
  return Status(Errc::kUnsupported, "group: the CUDA backend is not available in this build");
}

}  // namespace

bool has_cuda_backend() { return false; }

Result<CudaEngineParts> make_cuda_engine() { return unsupported(); }

Result<std::unique_ptr<fabric::Arena>> make_cuda_arena(Bootstrap& /*bootstrap*/,
                                                       int /*device*/,
                                                       std::int64_t /*control_bytes*/,
                                                       base::Deadline /*deadline*/) {
  return unsupported();
}

std::int64_t cuda_segment_bytes(std::int64_t bytes) { return bytes; }

}  // namespace ep::core
