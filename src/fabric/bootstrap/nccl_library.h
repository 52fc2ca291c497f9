// SPDX-License-Identifier: Apache-2.0
// The few functions of NCCL that the bootstrap calls, found at run time: ep links no NCCL and needs
// no header of it.
#pragma once

#include <ep/bootstrap.h>
#include <ep/status.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace ep::fabric {

/// Values of ncclResult_t and ncclDataType_t, which nccl.cc compares with NCCL's header.
inline constexpr int kNcclSuccess = 0;
inline constexpr int kNcclInProgress = 7;
inline constexpr int kNcclUint8 = 1;

/// As NCCL numbers them since 2.9: 10000 * major + 100 * minor + patch.
inline constexpr int kMinNcclVersion = 21900;

/// ncclX as x; cudaStream_t is void*, the enumerations are int.
struct NcclLibrary {
  int (*get_version)(int* version) = nullptr;
  const char* (*get_error_string)(int result) = nullptr;
  const char* (*get_last_error)(ncclComm* comm) = nullptr;
  int (*comm_count)(const ncclComm* comm, int* count) = nullptr;
  int (*comm_cu_device)(const ncclComm* comm, int* device) = nullptr;
  int (*comm_user_rank)(const ncclComm* comm, int* rank) = nullptr;
  int (*comm_get_async_error)(ncclComm* comm, int* result) = nullptr;
  int (*all_gather)(const void* source,
                    void* target,
                    std::size_t count,
                    int dtype,
                    ncclComm* comm,
                    void* stream) = nullptr;
};

/// Of the file `path`; else of the libnccl.so.2 that this process has loaded, or of what its global
/// scope has. Never of a library that nobody has loaded: it could not have made a communicator.
/// The library stays loaded. Errors: kUnsupported with what is missing, or its version.
Result<NcclLibrary> find_nccl(const std::optional<std::string>& path);

/// Success for ncclSuccess, else kNccl "ncclAllGather: invalid usage (ncclResult 5); last error of
/// NCCL: ...".
Status nccl_status(const NcclLibrary& library, int result, std::string_view what);

}  // namespace ep::fabric
