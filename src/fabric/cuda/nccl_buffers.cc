// SPDX-License-Identifier: Apache-2.0
// Copies to and from what NCCL gathers.
#include "fabric/cuda/nccl_buffers.h"

#include "base/check.h"
#include "fabric/cuda/status.h"

#include <cstring>
#include <string>
#include <utility>

namespace ep::fabric {

Result<std::unique_ptr<NcclBuffers>> CudaNcclBuffers::make(int device, int num_ranks) {
  EP_TRY_ASSIGN(CudaDevice opened, open_device(device));
  std::unique_ptr<CudaNcclBuffers> buffers(new CudaNcclBuffers(std::move(opened)));
  EP_TRY(buffers->prepare(static_cast<std::size_t>(num_ranks)));
  return std::unique_ptr<NcclBuffers>(std::move(buffers));
}

// Of cudaMalloc, not mapped as segments are: among ranks of one process NCCL lets one GPU write to
// the buffer of another, which it can only where the runtime has opened the memory to its peers.
Status CudaNcclBuffers::prepare(std::size_t num_ranks) {
  const DeviceScope scope(device_);
  const std::size_t bytes = kChunkBytes * (num_ranks + 1);
  EP_TRY_ASSIGN(pinned_, PinnedBlock::allocate(bytes));
  void* memory = nullptr;
  EP_TRY(cuda_status(cudaMalloc(&memory, bytes),
                     "cudaMalloc of " + std::to_string(bytes) + " bytes for the bootstrap"));
  source_ = static_cast<std::byte*>(memory);
  return cuda_status(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                     "cudaStreamCreateWithFlags");
}

CudaNcclBuffers::~CudaNcclBuffers() {
  const DeviceScope scope(device_);
  if (stream_ != nullptr) log_failure(cudaStreamDestroy(stream_), "cudaStreamDestroy");
  if (source_ != nullptr) log_failure(cudaFree(source_), "cudaFree");
}

void CudaNcclBuffers::enter() {
  log_failure(device_.driver->ctx_push_current(device_.context), "cuCtxPushCurrent");
  // What the caller captures elsewhere is none of this thread's business.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  log_failure(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
}

Status CudaNcclBuffers::send(std::span<const std::byte> mine) {
  EP_CHECK(mine.size() <= kChunkBytes);
  std::memcpy(pinned_.base(), mine.data(), mine.size());
  return cuda_status(
      cudaMemcpyAsync(source_, pinned_.base(), mine.size(), cudaMemcpyHostToDevice, stream_),
      "cudaMemcpyAsync for the bootstrap");
}

Status CudaNcclBuffers::receive(std::size_t bytes) {
  received_bytes_ = bytes;
  return cuda_status(cudaMemcpyAsync(pinned_.base() + kChunkBytes, target(), bytes,
                                     cudaMemcpyDeviceToHost, stream_),
                     "cudaMemcpyAsync for the bootstrap");
}

Result<bool> CudaNcclBuffers::has_arrived() {
  const cudaError_t error = cudaStreamQuery(stream_);
  if (error == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  EP_TRY(cuda_status(error, "all-gather of the bootstrap"));
  return true;
}

}  // namespace ep::fabric
