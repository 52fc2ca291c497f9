// SPDX-License-Identifier: Apache-2.0
// Segments in the memory of a GPU, and the tables that its roles read.
#pragma once

#include "fabric/cuda/device.h"
#include "fabric/cuda/mapping.h"
#include "fabric/cuda/pinned.h"
#include "fabric/segment_memory.h"

#include <ep/status.h>

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>
#include <vector>

namespace ep::fabric {

class CudaMemory final : public SegmentMemory {
 public:
  /// Errors: as open_device(); kOutOfMemory, kCuda.
  static Result<std::unique_ptr<SegmentMemory>> open(int ordinal, int num_ranks);

  DeviceIdentity device() const override { return device_.identity; }
  void meet(int rank, const std::vector<ArenaIdentity>& identities) override;
  Result<Created> create(std::int64_t bytes, std::int64_t used_bytes) override;
  Result<std::shared_ptr<Mapping>> map(const SegmentHandle& handle, std::int64_t bytes) override;
  Status map_failure(std::string_view what, int native_code) const override;
  Status publish(int peer, int segment, std::byte* base) override;
  std::atomic<std::uint32_t>* gone_flags() const override { return gone_; }

  /// std::byte* [num_ranks][kMaxSegments] in memory of the device.
  const std::byte* device_table() const { return table_->base(); }
  static std::int64_t table_bytes(int num_ranks);

 private:
  struct StreamDeleter {
    void operator()(cudaStream_t stream) const;
  };
  using Stream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, StreamDeleter>;

  explicit CudaMemory(CudaDevice device);
  Status prepare(int num_ranks);
  static Result<Stream> make_stream();
  Status zero(const Mapping& mapping);

  const CudaDevice device_;
  /// Of this process, its own first: those that read and write what is mapped here.
  std::vector<int> devices_;
  /// By which the ranks share their segments.
  HandleKind handle_kind_ = HandleKind::kDescriptor;
  /// The source of what is copied to table_, then the gone flags.
  PinnedBlock pinned_;
  std::byte** bases_ = nullptr;
  std::atomic<std::uint32_t>* gone_ = nullptr;
  std::shared_ptr<Mapping> table_;
  /// Two, so that the service thread never waits for a large segment to be zeroed.
  Stream zeroing_;
  Stream publishing_;
};

}  // namespace ep::fabric
