// SPDX-License-Identifier: Apache-2.0
// Failures of the CUDA runtime and driver as Status.
#pragma once

#include <ep/status.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <source_location>
#include <string_view>

namespace ep::fabric {

/// Success for cudaSuccess, else kCuda "cudaMalloc: out of memory (cudaError 2)", or kOutOfMemory.
/// The caller's next cudaGetLastError() does not see the failure again.
Status cuda_status(cudaError_t error,
                   std::string_view what,
                   std::source_location where = std::source_location::current());

/// The same for the driver: "cuMemMap: invalid argument (CUresult 1)".
Status cu_status(CUresult result,
                 std::string_view what,
                 std::source_location where = std::source_location::current());

/// For deleters, which cannot return it. Silent once the driver is shutting down: then everything
/// it owned has gone.
void log_failure(cudaError_t error, std::string_view what);
void log_failure(CUresult result, std::string_view what);

}  // namespace ep::fabric
