// SPDX-License-Identifier: Apache-2.0
// The NCCL bootstrap on GPUs; where NCCL's header is at hand, the compiler compares it with what ep
// calls.
#include "base/check.h"
#include "fabric/bootstrap/nccl_bootstrap.h"
#include "fabric/bootstrap/nccl_library.h"
#include "fabric/cuda/nccl_buffers.h"

#include <ep/bootstrap.h>

#include <type_traits>

#if __has_include(<nccl.h>)
#include <nccl.h>
#endif

namespace ep {

#if __has_include(<nccl.h>)
namespace {

/// An enumeration as what the calling convention passes.
template <class T>
struct PassedAs {
  using Type = T;
};
template <class T>
requires std::is_enum_v<T>
struct PassedAs<T> {
  static_assert(sizeof(T) == sizeof(int));
  using Type = int;
};
template <>
struct PassedAs<ncclResult_t*> {
  using Type = int*;
};
template <>
struct PassedAs<cudaStream_t> {
  using Type = void*;
};
/// Of a parameter NCCL says const ncclComm_t, a const pointer; what it points to is not changed.
template <>
struct PassedAs<const ncclComm*> {
  using Type = ncclComm*;
};

template <class Declared, class Called>
struct IsSameCall : std::false_type {};
template <class R, class... A, class CalledR, class... CalledA>
struct IsSameCall<R(A...), CalledR (*)(CalledA...)>
    : std::bool_constant<
          std::is_same_v<typename PassedAs<R>::Type, CalledR> &&
          (std::is_same_v<typename PassedAs<A>::Type, typename PassedAs<CalledA>::Type> && ...)> {};

using Calls = fabric::NcclLibrary;
static_assert(IsSameCall<decltype(ncclGetVersion), decltype(Calls::get_version)>::value);
static_assert(IsSameCall<decltype(ncclGetErrorString), decltype(Calls::get_error_string)>::value);
static_assert(IsSameCall<decltype(ncclGetLastError), decltype(Calls::get_last_error)>::value);
static_assert(IsSameCall<decltype(ncclCommCount), decltype(Calls::comm_count)>::value);
static_assert(IsSameCall<decltype(ncclCommCuDevice), decltype(Calls::comm_cu_device)>::value);
static_assert(IsSameCall<decltype(ncclCommUserRank), decltype(Calls::comm_user_rank)>::value);
static_assert(
    IsSameCall<decltype(ncclCommGetAsyncError), decltype(Calls::comm_get_async_error)>::value);
static_assert(IsSameCall<decltype(ncclAllGather), decltype(Calls::all_gather)>::value);
static_assert(ncclSuccess == fabric::kNcclSuccess && ncclInProgress == fabric::kNcclInProgress);
static_assert(ncclUint8 == fabric::kNcclUint8);

}  // namespace
#endif

Result<std::unique_ptr<Bootstrap>> make_nccl_bootstrap(ncclComm* comm,
                                                       const NcclBootstrapConfig& config) {
  return fabric::open_nccl_bootstrap(comm, config, fabric::CudaNcclBuffers::make);
}

}  // namespace ep
