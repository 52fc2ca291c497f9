// SPDX-License-Identifier: Apache-2.0
// What an all-gather of NCCL needs of a device: buffers and a stream. The seam at which tests put
// memory of the host.
#pragma once

#include <ep/status.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

namespace ep::fabric {

/// For one all-gather after another; each by one thread, not always the same. Nothing here waits
/// for the stream.
class NcclBuffers {
 public:
  /// What each rank can contribute to one all-gather.
  static constexpr std::size_t kChunkBytes = std::size_t{64} << 10;

  NcclBuffers() = default;
  NcclBuffers(const NcclBuffers&) = delete;
  NcclBuffers& operator=(const NcclBuffers&) = delete;
  /// Only once the stream is empty.
  virtual ~NcclBuffers() = default;

  /// Makes the device the calling thread's, for as long as the thread lives.
  virtual void enter() = 0;

  virtual const void* source() const = 0;
  virtual void* target() const = 0;
  /// A cudaStream_t of our own.
  virtual void* stream() const = 0;

  /// Queues: these bytes to source().
  virtual Status send(std::span<const std::byte> mine) = 0;
  /// Queues: so many bytes of target() to the host.
  virtual Status receive(std::size_t bytes) = 0;
  /// Whether all that was queued has ended.
  virtual Result<bool> has_arrived() = 0;
  /// What receive() brought, once has_arrived(); valid until the next receive().
  virtual std::span<const std::byte> received() const = 0;
};

/// For a communicator of `num_ranks` ranks on the device.
using MakeNcclBuffers =
    std::function<Result<std::unique_ptr<NcclBuffers>>(int device, int num_ranks)>;

}  // namespace ep::fabric
