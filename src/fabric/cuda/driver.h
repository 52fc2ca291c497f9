// SPDX-License-Identifier: Apache-2.0
// The driver functions that have no twin in the runtime, found at run time: ep loads without a
// driver.
#pragma once

#include <ep/status.h>

#include <cuda.h>

namespace ep::fabric {

struct Driver {
  decltype(&::cuCtxPushCurrent) ctx_push_current = nullptr;
  decltype(&::cuCtxPopCurrent) ctx_pop_current = nullptr;
  decltype(&::cuDeviceGetAttribute) device_get_attribute = nullptr;
  decltype(&::cuDeviceGetUuid) device_get_uuid = nullptr;
  decltype(&::cuDevicePrimaryCtxRetain) device_primary_ctx_retain = nullptr;
  decltype(&::cuMemAddressFree) mem_address_free = nullptr;
  decltype(&::cuMemAddressReserve) mem_address_reserve = nullptr;
  decltype(&::cuMemCreate) mem_create = nullptr;
  decltype(&::cuMemExportToShareableHandle) mem_export_to_shareable_handle = nullptr;
  decltype(&::cuMemGetAllocationGranularity) mem_get_allocation_granularity = nullptr;
  decltype(&::cuMemImportFromShareableHandle) mem_import_from_shareable_handle = nullptr;
  decltype(&::cuMemMap) mem_map = nullptr;
  decltype(&::cuMemRelease) mem_release = nullptr;
  decltype(&::cuMemSetAccess) mem_set_access = nullptr;
  decltype(&::cuMemUnmap) mem_unmap = nullptr;
  decltype(&::cuPointerGetAttribute) pointer_get_attribute = nullptr;
};

/// Versions as CUDA numbers them: 1000 * major + 10 * minor.
inline constexpr int kMinDriverVersion = 12080;

/// `driver_version`: 0 where there is none. Errors: kUnsupported with the numbers.
Status check_driver_version(int driver_version, int runtime_version);

/// check_driver_version() of this host's.
Status check_driver();

/// The same object for every caller, behind check_driver(). Any thread. Errors: kUnsupported for a
/// function that is not there; kCuda.
Result<const Driver*> load_driver();

}  // namespace ep::fabric
