// SPDX-License-Identifier: Apache-2.0
// Physical memory of a GPU, its handles, and its mapping into this process.
#pragma once

#include "fabric/cuda/device.h"
#include "fabric/mapping.h"
#include "fabric/segment_handle.h"

#include <ep/status.h>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace ep::fabric {

/// A move-only handle of physical memory, which lives while it has a handle, descriptor or mapping.
class Allocation {
 public:
  /// `bytes`: a multiple of kCudaGranule. Errors: kOutOfMemory, kCuda.
  static Result<Allocation> create(const CudaDevice& device,
                                   std::int64_t bytes,
                                   HandleKind kind = HandleKind::kDescriptor);
  /// The handle is not kept. Errors: kCuda.
  static Result<Allocation> import(const CudaDevice& device, const SegmentHandle& handle);

  Allocation(Allocation&& other) noexcept
      : driver_(other.driver_), handle_(std::exchange(other.handle_, 0)), kind_(other.kind_) {}
  Allocation& operator=(Allocation&&) = delete;
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;
  ~Allocation();

  CUmemGenericAllocationHandle handle() const { return handle_; }
  /// What import() takes in another process, of the kind that it was created with.
  Result<SegmentHandle> export_handle() const;

 private:
  Allocation(const Driver& driver, CUmemGenericAllocationHandle handle, HandleKind kind)
      : driver_(&driver), handle_(handle), kind_(kind) {}
  Result<base::UniqueFd> export_fd() const;

  const Driver* driver_;
  CUmemGenericAllocationHandle handle_;
  HandleKind kind_;
};

/// Whether this process may export and import memory of the device by FABRIC handles: tries it
/// where the device has them, since the right to do so depends on the host (an IMEX channel).
bool can_share_by_fabric(const CudaDevice& device);

/// What sizes of allocations and mappings are multiples of.
inline constexpr std::int64_t kCudaGranule = std::int64_t{2} << 20;

/// Maps all `bytes` bytes of an allocation, for reading and writing by these devices of this
/// process. Errors: kCuda, kOutOfMemory.
Result<std::shared_ptr<Mapping>> map_allocation(const Driver& driver,
                                                const Allocation& allocation,
                                                std::int64_t bytes,
                                                std::span<const int> devices);

}  // namespace ep::fabric
