// SPDX-License-Identifier: Apache-2.0
// Errors of CUDA calls as Status.
#pragma once

#include <ep/status.h>

#include <cuda_runtime.h>

#include <string>

namespace ep::bench {

inline Status cuda_status(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return {};
  const bool is_missing = error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver ||
                          error == cudaErrorStubLibrary;
  const Errc code = is_missing                           ? Errc::kUnsupported
                    : error == cudaErrorMemoryAllocation ? Errc::kOutOfMemory
                                                         : Errc::kCuda;
  return Status(code, std::string(call) + ": " + cudaGetErrorString(error), error);
}

}  // namespace ep::bench

/// Returns a Status from the enclosing function unless the call of the CUDA runtime succeeds.
#define EP_BENCH_CUDA(call) EP_TRY(::ep::bench::cuda_status((call), #call))
