// SPDX-License-Identifier: Apache-2.0
// Looks up the functions of the driver.
#include "fabric/cuda/driver.h"

#include "base/check.h"
#include "fabric/cuda/status.h"

#include <algorithm>
#include <string>

namespace ep::fabric {
namespace {

constexpr int kMajor = 1000;

std::string text_of_version(int version) {
  return std::to_string(version / kMajor) + "." + std::to_string(version % kMajor / 10);
}

template <class Function>
Status find(const char* name, Function& function) {
  void* entry = nullptr;
  EP_TRY(cuda_status(
      cudaGetDriverEntryPointByVersion(name, &entry, kMinDriverVersion, cudaEnableDefault, nullptr),
      name));
  if (entry == nullptr) {
    return Status(Errc::kUnsupported, std::string("the CUDA driver has no ") + name);
  }
  function = reinterpret_cast<Function>(entry);
  return Status();
}

Result<Driver> find_all() {
  Driver driver;
  EP_TRY(find("cuCtxPushCurrent", driver.ctx_push_current));
  EP_TRY(find("cuCtxPopCurrent", driver.ctx_pop_current));
  EP_TRY(find("cuDeviceGetAttribute", driver.device_get_attribute));
  EP_TRY(find("cuDeviceGetUuid", driver.device_get_uuid));
  EP_TRY(find("cuDevicePrimaryCtxRetain", driver.device_primary_ctx_retain));
  EP_TRY(find("cuMemAddressFree", driver.mem_address_free));
  EP_TRY(find("cuMemAddressReserve", driver.mem_address_reserve));
  EP_TRY(find("cuMemCreate", driver.mem_create));
  EP_TRY(find("cuMemExportToShareableHandle", driver.mem_export_to_shareable_handle));
  EP_TRY(find("cuMemGetAllocationGranularity", driver.mem_get_allocation_granularity));
  EP_TRY(find("cuMemImportFromShareableHandle", driver.mem_import_from_shareable_handle));
  EP_TRY(find("cuMemMap", driver.mem_map));
  EP_TRY(find("cuMemRelease", driver.mem_release));
  EP_TRY(find("cuMemSetAccess", driver.mem_set_access));
  EP_TRY(find("cuMemUnmap", driver.mem_unmap));
  EP_TRY(find("cuPointerGetAttribute", driver.pointer_get_attribute));
  return driver;
}

}  // namespace

Status check_driver_version(int driver_version, int runtime_version) {
  if (driver_version == 0) return Status(Errc::kUnsupported, "no CUDA driver on this host");
  // Within a major version the runtime works with older drivers.
  const int min_version = std::max(kMinDriverVersion, runtime_version / kMajor * kMajor);
  if (driver_version >= min_version) return Status();
  return Status(Errc::kUnsupported, "CUDA driver for CUDA " + text_of_version(driver_version) +
                                        ", expected at least " + text_of_version(min_version));
}

Status check_driver() {
  int driver_version = 0;
  int runtime_version = 0;
  EP_TRY(cuda_status(cudaDriverGetVersion(&driver_version), "cudaDriverGetVersion"));
  EP_TRY(cuda_status(cudaRuntimeGetVersion(&runtime_version), "cudaRuntimeGetVersion"));
  return check_driver_version(driver_version, runtime_version);
}

Result<const Driver*> load_driver() {
  static const Result<Driver> kLoaded = find_all();
  if (!kLoaded.ok()) return kLoaded.status();
  return &*kLoaded;
}

}  // namespace ep::fabric
