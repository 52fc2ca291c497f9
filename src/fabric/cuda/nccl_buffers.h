// SPDX-License-Identifier: Apache-2.0
// Buffers and a stream on the device of a communicator of NCCL.
#pragma once

#include "fabric/bootstrap/nccl_buffers.h"
#include "fabric/cuda/device.h"
#include "fabric/cuda/pinned.h"

#include <ep/status.h>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <span>

namespace ep::fabric {

class CudaNcclBuffers final : public NcclBuffers {
 public:
  /// MakeNcclBuffers. Errors: as open_device(); kOutOfMemory, kCuda.
  static Result<std::unique_ptr<NcclBuffers>> make(int device, int num_ranks);

  /// Waits for all work of the device, as cudaFree() does.
  ~CudaNcclBuffers() override;

  void enter() override;
  const void* source() const override { return source_; }
  void* target() const override { return source_ + kChunkBytes; }
  void* stream() const override { return stream_; }
  Status send(std::span<const std::byte> mine) override;
  Status receive(std::size_t bytes) override;
  Result<bool> has_arrived() override;
  std::span<const std::byte> received() const override {
    return {pinned_.base() + kChunkBytes, received_bytes_};
  }

 private:
  explicit CudaNcclBuffers(CudaDevice device) : device_(std::move(device)) {}
  Status prepare(std::size_t num_ranks);

  const CudaDevice device_;
  /// A chunk to send, then those of all ranks; and their images in memory of the host.
  std::byte* source_ = nullptr;
  PinnedBlock pinned_;
  cudaStream_t stream_ = nullptr;
  std::size_t received_bytes_ = 0;
};

}  // namespace ep::fabric
