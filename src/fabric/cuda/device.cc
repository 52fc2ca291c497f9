// SPDX-License-Identifier: Apache-2.0
// Checks of a device, who reaches whom, and scopes of its context.
#include "fabric/cuda/device.h"

#include "base/check.h"
#include "fabric/cuda/status.h"

#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace ep::fabric {
namespace {

constexpr int kMinMajor = 8;

Status check_ordinal(int ordinal) {
  int num_devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&num_devices);
  if (error == cudaErrorNoDevice) num_devices = 0;
  if (error != cudaErrorNoDevice) EP_TRY(cuda_status(error, "cudaGetDeviceCount"));
  if (num_devices == 0) return Status(Errc::kUnsupported, "no CUDA device on this host");
  if (ordinal >= 0 && ordinal < num_devices) return Status();
  return Status(Errc::kInvalidArgument, "device = " + std::to_string(ordinal) +
                                            ", this process sees " + std::to_string(num_devices));
}

Status check_attribute(const Driver& driver,
                       int ordinal,
                       CUdevice_attribute attribute,
                       const char* name) {
  int value = 0;
  EP_TRY(cu_status(driver.device_get_attribute(&value, attribute, ordinal), name));
  if (value != 0) return Status();
  return Status(Errc::kUnsupported, "device " + std::to_string(ordinal) + " has no " + name);
}

Status check_device(const Driver& driver, int ordinal) {
  int major = 0;
  int minor = 0;
  EP_TRY(cuda_status(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal),
                     "compute capability"));
  EP_TRY(cuda_status(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, ordinal),
                     "compute capability"));
  EP_TRY(check_compute_capability(ordinal, major, minor));
  EP_TRY(check_attribute(driver, ordinal, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                         "virtual memory management"));
  return check_attribute(driver, ordinal,
                         CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                         "memory handles as file descriptors");
}

Result<DeviceUuid> uuid_of(const Driver& driver, int ordinal) {
  CUuuid uuid{};
  EP_TRY(cu_status(driver.device_get_uuid(&uuid, ordinal), "cuDeviceGetUuid"));
  DeviceUuid bytes{};
  static_assert(sizeof(uuid) == sizeof(bytes));
  std::memcpy(bytes.data(), &uuid, sizeof(uuid));
  return bytes;
}

/// Load, store and add: the protocol counts arrivals in the peer's memory.
Result<bool> can_reach(int device, int peer) {
  for (const cudaDeviceP2PAttr needed :
       {cudaDevP2PAttrAccessSupported, cudaDevP2PAttrNativeAtomicSupported}) {
    int value = 0;
    EP_TRY(cuda_status(cudaDeviceGetP2PAttribute(&value, needed, device, peer),
                       "cudaDeviceGetP2PAttribute"));
    if (value == 0) return false;
  }
  return true;
}

Result<DeviceIdentity> identity_of(const Driver& driver, int ordinal) {
  DeviceIdentity identity;
  identity.ordinal = ordinal;
  EP_TRY_ASSIGN(identity.uuid, uuid_of(driver, ordinal));
  int num_devices = 0;
  EP_TRY(cuda_status(cudaGetDeviceCount(&num_devices), "cudaGetDeviceCount"));
  for (int peer = 0; peer < num_devices; ++peer) {
    if (peer == ordinal) continue;
    EP_TRY_ASSIGN(const bool is_reachable, can_reach(ordinal, peer));
    if (is_reachable) continue;
    EP_TRY_ASSIGN(const DeviceUuid uuid, uuid_of(driver, peer));
    identity.unreachable.push_back(uuid);
  }
  return identity;
}

/// Retained once per device, and never released.
Result<CUcontext> primary_context(const Driver& driver, int ordinal) {
  static std::mutex mutex;
  static auto* const retained = new std::map<int, CUcontext>;
  const std::lock_guard lock(mutex);
  if (const auto found = retained->find(ordinal); found != retained->end()) return found->second;
  CUcontext context = nullptr;
  EP_TRY(cu_status(driver.device_primary_ctx_retain(&context, ordinal),
                   "context of device " + std::to_string(ordinal)));
  retained->emplace(ordinal, context);
  return context;
}

}  // namespace

Status check_compute_capability(int ordinal, int major, int minor) {
  if (major >= kMinMajor) return Status();
  return Status(Errc::kUnsupported, "device " + std::to_string(ordinal) +
                                        " has compute capability " + std::to_string(major) + "." +
                                        std::to_string(minor) + ", expected at least " +
                                        std::to_string(kMinMajor) + ".0");
}

Result<CudaDevice> open_device(int ordinal) {
  CudaDevice device;
  EP_TRY(check_driver());
  EP_TRY(check_ordinal(ordinal));
  EP_TRY_ASSIGN(device.driver, load_driver());
  EP_TRY(check_device(*device.driver, ordinal));
  EP_TRY_ASSIGN(device.identity, identity_of(*device.driver, ordinal));
  EP_TRY_ASSIGN(device.context, primary_context(*device.driver, ordinal));
  const DeviceScope scope(device);
  std::size_t free_bytes = 0;
  std::size_t memory_bytes = 0;
  EP_TRY(cuda_status(cudaMemGetInfo(&free_bytes, &memory_bytes), "cudaMemGetInfo"));
  device.memory_bytes = static_cast<std::int64_t>(memory_bytes);
  return device;
}

DeviceScope::DeviceScope(const CudaDevice& device) : driver_(*device.driver) {
  const CUresult pushed = driver_.ctx_push_current(device.context);
  // Without it the calls that follow fail, and say so.
  log_failure(pushed, "cuCtxPushCurrent");
  is_pushed_ = pushed == CUDA_SUCCESS;
  static_cast<void>(cudaThreadExchangeStreamCaptureMode(&capture_mode_));
}

DeviceScope::~DeviceScope() {
  static_cast<void>(cudaThreadExchangeStreamCaptureMode(&capture_mode_));
  CUcontext context = nullptr;
  if (is_pushed_) log_failure(driver_.ctx_pop_current(&context), "cuCtxPopCurrent");
}

}  // namespace ep::fabric
