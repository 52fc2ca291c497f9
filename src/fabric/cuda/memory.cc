// SPDX-License-Identifier: Apache-2.0
// Segments in the memory of a GPU. Nothing here waits for more than a stream of its own.
#include "fabric/cuda/memory.h"

#include "base/check.h"
#include "fabric/cuda/arena.h"
#include "fabric/cuda/status.h"
#include "fabric/segment.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

namespace ep::fabric {

void CudaMemory::StreamDeleter::operator()(cudaStream_t stream) const {
  log_failure(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

CudaMemory::CudaMemory(CudaDevice device)
    : device_(std::move(device)), devices_{device_.identity.ordinal} {}

std::int64_t CudaMemory::table_bytes(int num_ranks) {
  return std::int64_t{num_ranks} * kMaxSegments * static_cast<std::int64_t>(sizeof(std::byte*));
}

Result<std::unique_ptr<SegmentMemory>> CudaMemory::open(int ordinal, int num_ranks) {
  EP_TRY_ASSIGN(CudaDevice device, open_device(ordinal));
  {
    const DeviceScope scope(device);
    device.identity.has_fabric_handles = can_share_by_fabric(device);
  }
  std::unique_ptr<CudaMemory> memory(new CudaMemory(std::move(device)));
  EP_TRY(memory->prepare(num_ranks));
  return std::unique_ptr<SegmentMemory>(std::move(memory));
}

Result<CudaMemory::Stream> CudaMemory::make_stream() {
  cudaStream_t stream = nullptr;
  EP_TRY(cuda_status(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                     "cudaStreamCreateWithFlags"));
  return Stream(stream);
}

Status CudaMemory::prepare(int num_ranks) {
  const DeviceScope scope(device_);
  EP_TRY_ASSIGN(zeroing_, make_stream());
  EP_TRY_ASSIGN(publishing_, make_stream());
  const auto num_flags = static_cast<std::size_t>(num_ranks);
  const auto bytes = static_cast<std::size_t>(table_bytes(num_ranks));
  EP_TRY_ASSIGN(pinned_,
                PinnedBlock::allocate(bytes + num_flags * sizeof(std::atomic<std::uint32_t>)));
  bases_ = new (pinned_.base()) std::byte*[bytes / sizeof(std::byte*)]();
  gone_ = new (pinned_.base() + bytes) std::atomic<std::uint32_t>[num_flags]();
  // Mapped memory, too: cudaFree would wait for all work of the device.
  const std::int64_t mapped_bytes = CudaArena::segment_bytes(table_bytes(num_ranks));
  EP_TRY_ASSIGN(const Allocation allocation, Allocation::create(device_, mapped_bytes));
  EP_TRY_ASSIGN(table_, map_allocation(*device_.driver, allocation, mapped_bytes, devices_));
  return zero(*table_);
}

void CudaMemory::meet(int rank, const std::vector<ArenaIdentity>& identities) {
  const ArenaIdentity& self = identities[static_cast<std::size_t>(rank)];
  for (const ArenaIdentity& peer : identities) {
    const int ordinal = peer.device.ordinal;
    const bool is_known = std::find(devices_.begin(), devices_.end(), ordinal) != devices_.end();
    if (peer.is_same_process(self) && !is_known) devices_.push_back(ordinal);
  }
  handle_kind_ = choose_handles(identities);
}

Status CudaMemory::zero(const Mapping& mapping) {
  EP_TRY(cuda_status(
      cudaMemsetAsync(mapping.base(), 0, static_cast<std::size_t>(mapping.bytes()), zeroing_.get()),
      "cudaMemsetAsync"));
  return cuda_status(cudaStreamSynchronize(zeroing_.get()), "zeroing a segment");
}

Result<SegmentMemory::Created> CudaMemory::create(std::int64_t bytes, std::int64_t used_bytes) {
  if (used_bytes > device_.memory_bytes - bytes) {
    return Status(Errc::kOutOfMemory, "arena: segment of " + std::to_string(bytes) +
                                          " bytes after " + std::to_string(used_bytes) + ", but " +
                                          name_of(device_.identity) + " has " +
                                          std::to_string(device_.memory_bytes) + " bytes");
  }
  const DeviceScope scope(device_);
  const std::int64_t mapped_bytes = CudaArena::segment_bytes(bytes);
  EP_TRY_ASSIGN(const Allocation allocation,
                Allocation::create(device_, mapped_bytes, handle_kind_));
  EP_TRY_ASSIGN(std::shared_ptr<Mapping> mapping,
                map_allocation(*device_.driver, allocation, mapped_bytes, devices_));
  EP_TRY(zero(*mapping));
  EP_TRY_ASSIGN(SegmentHandle handle, allocation.export_handle());
  return Created{.handle = std::move(handle), .mapping = std::move(mapping)};
}

Result<std::shared_ptr<Mapping>> CudaMemory::map(const SegmentHandle& handle, std::int64_t bytes) {
  if (bytes % kCudaGranule != 0) {
    return Status(Errc::kFabric, "arena: segment of " + std::to_string(bytes) +
                                     " bytes, expected a multiple of " +
                                     std::to_string(kCudaGranule));
  }
  if (handle.fabric.has_value() != (handle_kind_ == HandleKind::kFabric)) {
    return Status(Errc::kFabric, "arena: segment by another kind of handle than was agreed on");
  }
  const DeviceScope scope(device_);
  EP_TRY_ASSIGN(const Allocation allocation, Allocation::import(device_, handle));
  return map_allocation(*device_.driver, allocation, bytes, devices_);
}

Status CudaMemory::map_failure(std::string_view what, int native_code) const {
  return cu_status(static_cast<CUresult>(native_code), what);
}

// From pinned memory, so that the copy engine does it and no multiprocessor has to be free.
Status CudaMemory::publish(int peer, int segment, std::byte* base) {
  const DeviceScope scope(device_);
  const std::int64_t index = std::int64_t{peer} * kMaxSegments + segment;
  bases_[index] = base;
  EP_TRY(cuda_status(
      cudaMemcpyAsync(table_->base() + index * std::int64_t{sizeof(std::byte*)}, bases_ + index,
                      sizeof(std::byte*), cudaMemcpyHostToDevice, publishing_.get()),
      "cudaMemcpyAsync of a segment's base"));
  return cuda_status(cudaStreamSynchronize(publishing_.get()), "publishing a segment's base");
}

}  // namespace ep::fabric
