// SPDX-License-Identifier: Apache-2.0
// Text and code of a failed CUDA call.
#include "fabric/cuda/status.h"

#include "base/log.h"

#include <string>

namespace ep::fabric {
namespace {

Status failure(cudaError_t error,
               std::string_view kind,
               std::string_view what,
               const std::source_location& where) {
  std::string message(what);
  message.append(": ").append(cudaGetErrorString(error));
  message.append(" (").append(kind).append(" ").append(std::to_string(error)).append(")");
  if (base::is_logged(LogLevel::kDebug)) {
    base::log(LogLevel::kDebug, std::string(where.function_name()) + ": " + message);
  }
  const Errc code = error == cudaErrorMemoryAllocation ? Errc::kOutOfMemory : Errc::kCuda;
  return Status(code, std::move(message), error);
}

}  // namespace

Status cuda_status(cudaError_t error, std::string_view what, std::source_location where) {
  if (error == cudaSuccess) return Status();
  static_cast<void>(cudaGetLastError());
  return failure(error, "cudaError", what, where);
}

Status cu_status(CUresult result, std::string_view what, std::source_location where) {
  if (result == CUDA_SUCCESS) return Status();
  // Since CUDA 10.1 both have the same numbers.
  return failure(static_cast<cudaError_t>(result), "CUresult", what, where);
}

void log_failure(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess || error == cudaErrorCudartUnloading) return;
  base::log(LogLevel::kError, cuda_status(error, what).message());
}

void log_failure(CUresult result, std::string_view what) {
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_DEINITIALIZED) return;
  base::log(LogLevel::kError, cu_status(result, what).message());
}

}  // namespace ep::fabric
