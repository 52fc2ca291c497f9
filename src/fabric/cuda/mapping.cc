// SPDX-License-Identifier: Apache-2.0
// Physical memory of a GPU and its mappings.
#include "fabric/cuda/mapping.h"

#include "base/check.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "fabric/cuda/status.h"

#include <cstddef>
#include <errno.h>
#include <fcntl.h>
#include <string>
#include <vector>

namespace ep::fabric {
namespace {

constexpr CUmemAllocationHandleType kDescriptorType = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
constexpr CUmemAllocationHandleType kFabricType = CU_MEM_HANDLE_TYPE_FABRIC;
static_assert(sizeof(FabricHandle) == sizeof(CUmemFabricHandle));

/// Addresses without memory.
class AddressRange {
 public:
  static Result<AddressRange> reserve(const Driver& driver, std::int64_t bytes) {
    CUdeviceptr base = 0;
    const auto size = static_cast<std::size_t>(bytes);
    EP_TRY(cu_status(
        driver.mem_address_reserve(&base, size, static_cast<std::size_t>(kCudaGranule), 0, 0),
        "cuMemAddressReserve of " + std::to_string(bytes) + " bytes"));
    return AddressRange(driver, base, size);
  }
  AddressRange(AddressRange&& other) noexcept
      : driver_(other.driver_), base_(std::exchange(other.base_, 0)), bytes_(other.bytes_) {}
  AddressRange& operator=(AddressRange&&) = delete;
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;
  ~AddressRange() {
    if (base_ != 0) log_failure(driver_->mem_address_free(base_, bytes_), "cuMemAddressFree");
  }

  const Driver& driver() const { return *driver_; }
  CUdeviceptr base() const { return base_; }
  std::size_t bytes() const { return bytes_; }

 private:
  AddressRange(const Driver& driver, CUdeviceptr base, std::size_t bytes)
      : driver_(&driver), base_(base), bytes_(bytes) {}

  const Driver* driver_;
  CUdeviceptr base_;
  std::size_t bytes_;
};

/// Addresses with memory behind them.
class CudaMapping final : public Mapping {
 public:
  explicit CudaMapping(AddressRange range)
      : Mapping(reinterpret_cast<std::byte*>(range.base()),
                static_cast<std::int64_t>(range.bytes())),
        range_(std::move(range)) {}
  ~CudaMapping() override {
    log_failure(range_.driver().mem_unmap(range_.base(), range_.bytes()), "cuMemUnmap");
  }

 private:
  const AddressRange range_;
};

CUmemAllocationProp properties_of(const CudaDevice& device, HandleKind kind) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = kind == HandleKind::kFabric ? kFabricType : kDescriptorType;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device.identity.ordinal};
  return properties;
}

Status check_granularity(const CudaDevice& device, const CUmemAllocationProp& properties) {
  std::size_t granularity = 0;
  EP_TRY(cu_status(device.driver->mem_get_allocation_granularity(&granularity, &properties,
                                                                 CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                   "cuMemGetAllocationGranularity"));
  if (granularity != 0 && static_cast<std::size_t>(kCudaGranule) % granularity == 0) {
    return Status();
  }
  return Status(Errc::kUnsupported, name_of(device.identity) + " allocates in units of " +
                                        std::to_string(granularity) + " bytes, expected " +
                                        std::to_string(kCudaGranule));
}

}  // namespace

Result<Allocation> Allocation::create(const CudaDevice& device,
                                      std::int64_t bytes,
                                      HandleKind kind) {
  const CUmemAllocationProp properties = properties_of(device, kind);
  EP_TRY(check_granularity(device, properties));
  CUmemGenericAllocationHandle handle = 0;
  EP_TRY(cu_status(
      device.driver->mem_create(&handle, static_cast<std::size_t>(bytes), &properties, 0),
      "cuMemCreate of " + std::to_string(bytes) + " bytes on " + name_of(device.identity)));
  return Allocation(*device.driver, handle, kind);
}

Result<Allocation> Allocation::import(const CudaDevice& device, const SegmentHandle& handle) {
  CUmemGenericAllocationHandle imported = 0;
  const auto import_from = [&](void* os_handle, CUmemAllocationHandleType type) {
    return cu_status(device.driver->mem_import_from_shareable_handle(&imported, os_handle, type),
                     "cuMemImportFromShareableHandle");
  };
  if (handle.fabric) {
    FabricHandle copy = *handle.fabric;
    EP_TRY(import_from(copy.data(), kFabricType));
    return Allocation(*device.driver, imported, HandleKind::kFabric);
  }
  // A descriptor travels as a pointer here.
  const auto fd = static_cast<std::intptr_t>(handle.fd.get());
  EP_TRY(import_from(reinterpret_cast<void*>(fd), kDescriptorType));
  return Allocation(*device.driver, imported, HandleKind::kDescriptor);
}

Allocation::~Allocation() {
  if (handle_ != 0) log_failure(driver_->mem_release(handle_), "cuMemRelease");
}

Result<base::UniqueFd> Allocation::export_fd() const {
  int fd = -1;
  EP_TRY(cu_status(driver_->mem_export_to_shareable_handle(&fd, handle_, kDescriptorType, 0),
                   "cuMemExportToShareableHandle"));
  base::UniqueFd owned(fd);
  if (::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) return base::errno_status("arena: fcntl", errno);
  return owned;
}

Result<SegmentHandle> Allocation::export_handle() const {
  SegmentHandle exported;
  if (kind_ == HandleKind::kDescriptor) {
    EP_TRY_ASSIGN(exported.fd, export_fd());
    return exported;
  }
  FabricHandle& fabric = exported.fabric.emplace();
  EP_TRY(cu_status(driver_->mem_export_to_shareable_handle(fabric.data(), handle_, kFabricType, 0),
                   "cuMemExportToShareableHandle of a FABRIC handle"));
  return exported;
}

bool can_share_by_fabric(const CudaDevice& device) {
  int is_supported = 0;
  const CUresult asked = device.driver->device_get_attribute(
      &is_supported, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, device.identity.ordinal);
  if (asked != CUDA_SUCCESS || is_supported == 0) return false;
  const auto try_it = [&device]() -> Status {
    EP_TRY_ASSIGN(const Allocation own,
                  Allocation::create(device, kCudaGranule, HandleKind::kFabric));
    EP_TRY_ASSIGN(const SegmentHandle handle, own.export_handle());
    return Allocation::import(device, handle).status();
  };
  const Status status = try_it();
  if (!status.ok()) {
    base::log(LogLevel::kInfo,
              "no FABRIC handles on " + name_of(device.identity) + ": " + status.message());
  }
  return status.ok();
}

Result<std::shared_ptr<Mapping>> map_allocation(const Driver& driver,
                                                const Allocation& allocation,
                                                std::int64_t bytes,
                                                std::span<const int> devices) {
  EP_TRY_ASSIGN(AddressRange range, AddressRange::reserve(driver, bytes));
  const CUdeviceptr base = range.base();
  const auto size = static_cast<std::size_t>(bytes);
  EP_TRY(cu_status(driver.mem_map(base, size, 0, allocation.handle(), 0),
                   "cuMemMap of " + std::to_string(bytes) + " bytes"));
  std::shared_ptr<Mapping> mapping = std::make_shared<CudaMapping>(std::move(range));
  std::vector<CUmemAccessDesc> access;
  for (const int device : devices) {
    access.push_back({.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                      .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  }
  EP_TRY(cu_status(driver.mem_set_access(base, size, access.data(), access.size()),
                   "cuMemSetAccess of " + std::to_string(bytes) + " bytes"));
  return mapping;
}

}  // namespace ep::fabric
