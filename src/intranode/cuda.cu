// SPDX-License-Identifier: Apache-2.0
// Instantiates the intranode roles for the CUDA executor and launches them; nothing else.
#include "intranode/cuda.h"
#include "intranode/cuda_kernels.cuh"

#include <cuda_runtime.h>

#include <algorithm>
#include <string>

namespace ep::intranode {
namespace {

using primitives::CudaExec;
using primitives::WarpGroup;

struct FlatDispatch {
  static constexpr DispatchTuning kTuning{
      .route_warps = 4, .send_warps = 2, .record_warps = 4, .stages = 6};
};
struct ExpertDispatch {
  static constexpr DispatchTuning kTuning{
      .route_warps = 4, .send_warps = 1, .pad_warps = 1, .copy_warps = 2, .stages = 4};
};
/// Any layout, for rows so large that there is room for few stages.
struct LargeRowDispatch {
  static constexpr DispatchTuning kTuning{.route_warps = 4,
                                          .send_warps = 1,
                                          .record_warps = 2,
                                          .pad_warps = 1,
                                          .copy_warps = 1,
                                          .stages = 2};
};
struct PullCombine {
  static constexpr CombineTuning kTuning{.prepare_warps = 1, .pull_warps = 11};
};
struct PushCombine {
  static constexpr CombineTuning kTuning{.prepare_warps = 1, .pull_warps = 4, .push_warps = 3};
};

/// Bulk copies exist from this compute capability on, in tens; below it nothing is staged.
constexpr int kFirstTmaVersion = 90;

Status cuda_status(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return {};
  return Status(Errc::kCuda, std::string(call) + ": " + cudaGetErrorString(error), error);
}

/// What a launch needs to know about a kernel on the current device.
struct KernelLimits {
  bool has_tma = false;
  std::int64_t max_shared_bytes = 0;
};

template <class Kernel>
Result<KernelLimits> query_limits(Kernel kernel) {
  cudaFuncAttributes attributes;
  if (Status status =
          cuda_status(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
      !status.ok()) {
    return status;
  }
  int device = 0;
  int max_bytes = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&max_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  if (Status status = cuda_status(error, "cudaDeviceGetAttribute"); !status.ok()) return status;
  return KernelLimits{attributes.binaryVersion >= kFirstTmaVersion, max_bytes};
}

bool is_aligned(const RowInput& rows) {
  const auto address = reinterpret_cast<std::uintptr_t>(rows.data);
  const auto bits = address | static_cast<std::uint64_t>(rows.stride_bytes) |
                    static_cast<std::uint64_t>(rows.row_bytes);
  return bits % static_cast<std::uint64_t>(primitives::kRowGranuleBytes) == 0;
}

Status check_rows(const char* name, const RowInput& rows) {
  if (is_aligned(rows)) return {};
  return Status(Errc::kInvalidArgument,
                std::string(name) +
                    ": on a GPU rows, strides and addresses are multiples of 16 bytes; stride " +
                    std::to_string(rows.stride_bytes) + ", row " + std::to_string(rows.row_bytes) +
                    " bytes");
}

template <class Tuned>
SharedPlan plan_dispatch(const DispatchParams& params, bool has_tma) {
  using Bulk = primitives::TmaBulk<Tuned::kTuning.stages>;
  SharedPlan plan;
  const std::int64_t tally_bytes = std::int64_t{8} * params.op.layout.shape.num_ranks;
  std::fill_n(plan.scratch_bytes, DispatchTuning::kNumRoles,
              layout::round_up(tally_bytes, layout::kLineBytes));
  plan.scratch_bytes[static_cast<int>(DispatchRole::kRoute)] =
      layout::round_up(RouteScratch::bytes(params.routing.tables.shape), layout::kLineBytes);
  if (has_tma) {
    plan.stage_bytes = layout::round_up(params.x.row_bytes, layout::kLineBytes);
    for (const DispatchRole role : {DispatchRole::kSend, DispatchRole::kCopy}) {
      plan.pipe_bytes[static_cast<int>(role)] = Bulk::shared_bytes(plan.stage_bytes);
    }
  }
  return plan;
}

SharedPlan plan_combine(const CombineParams& params) {
  SharedPlan plan;
  const std::int64_t bytes =
      PullLane<CudaExec<CombineTuning::stages>, WarpGroup>::scratch_bytes(params.op);
  std::fill_n(plan.scratch_bytes, CombineTuning::kNumRoles,
              layout::round_up(bytes, layout::kLineBytes));
  return plan;
}

/// Warps of the roles that this launch has.
template <class Tuning, class Params>
int num_lanes_of(const Tuning& tuning, const Params& params) {
  int num_lanes = 0;
  for (int i = 0; i < Tuning::kNumRoles; ++i) {
    const auto role = static_cast<typename Tuning::Role>(i);
    if (params.has_role(role)) num_lanes += tuning.warps_of(role);
  }
  return num_lanes;
}

/// One kernel and how it is launched.
template <class Tuning, class Params>
struct KernelLaunch {
  void (*kernel)(Params, SharedPlan);
  Tuning tuning;
  SharedPlan plan;

  Status run(const Stream& stream, const Params& params, int num_sms) const {
    Params launched = params;
    launched.op.num_lanes = num_sms * num_lanes_of(tuning, params);
    const auto bytes = static_cast<int>(total_bytes(plan, tuning));
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (Status status = cuda_status(error, "cudaFuncSetAttribute"); !status.ok()) return status;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(num_sms));
    config.blockDim = dim3(static_cast<unsigned>(num_threads(tuning)));
    config.dynamicSmemBytes = static_cast<std::size_t>(bytes);
    config.stream = static_cast<cudaStream_t>(stream.handle);
    return cuda_status(cudaLaunchKernelEx(&config, kernel, launched, plan), "cudaLaunchKernelEx");
  }
};

/// Launches with the first tuning whose shared memory fits.
template <class Tuned, class... Further>
Status run_dispatch(const Stream& stream, const DispatchParams& params, int num_sms) {
  const auto kernel = dispatch_kernel<Tuned>;
  const Result<KernelLimits> limits = query_limits(kernel);
  if (!limits.ok()) return limits.status();
  const SharedPlan plan = plan_dispatch<Tuned>(params, limits->has_tma);
  const std::int64_t bytes = total_bytes(plan, Tuned::kTuning);
  if (bytes <= limits->max_shared_bytes) {
    const KernelLaunch<DispatchTuning, DispatchParams> launch{kernel, Tuned::kTuning, plan};
    return launch.run(stream, params, num_sms);
  }
  if constexpr (sizeof...(Further) > 0) {
    return run_dispatch<Further...>(stream, params, num_sms);
  } else {
    return Status(Errc::kUnsupported, "dispatch of rows of " + std::to_string(params.x.row_bytes) +
                                          " bytes needs " + std::to_string(bytes) +
                                          " bytes of shared memory, the GPU has " +
                                          std::to_string(limits->max_shared_bytes));
  }
}

template <class Tuned>
Status run_combine(const Stream& stream, const CombineParams& params, int num_sms) {
  const KernelLaunch<CombineTuning, CombineParams> launch{combine_kernel<Tuned>, Tuned::kTuning,
                                                          plan_combine(params)};
  return launch.run(stream, params, num_sms);
}

}  // namespace

Status launch_dispatch(const Stream& stream, const DispatchParams& params, int num_sms) {
  if (Status status = check_rows("x", params.x); !status.ok()) return status;
  if (params.has_expert_rows())
    return run_dispatch<ExpertDispatch, LargeRowDispatch>(stream, params, num_sms);
  return run_dispatch<FlatDispatch, LargeRowDispatch>(stream, params, num_sms);
}

Status launch_combine(const Stream& stream, const CombineParams& params, int num_sms) {
  if (Status status = check_rows("expert rows", params.rows); !status.ok()) return status;
  if (Status status = check_rows("bias", params.bias); !status.ok()) return status;
  if (params.has_role(CombineRole::kPush)) return run_combine<PushCombine>(stream, params, num_sms);
  return run_combine<PullCombine>(stream, params, num_sms);
}

}  // namespace ep::intranode
