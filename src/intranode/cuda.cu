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
  static constexpr CombineTuning kTuning{.prepare_warps = 1, .pull_warps = 7, .term_slots = 15};
};
struct PushCombine {
  static constexpr CombineTuning kTuning{
      .prepare_warps = 1, .pull_warps = 5, .push_warps = 6, .term_slots = 10};
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

Status check_rows(const char* name, const RowInput& rows) {
  if (rows.is_in_units()) return {};
  return Status(Errc::kInvalidArgument,
                std::string(name) +
                    ": on a GPU rows, strides and addresses are multiples of 16 bytes; stride " +
                    std::to_string(rows.stride_bytes) + ", row " + std::to_string(rows.row_bytes) +
                    " bytes");
}

std::int64_t lines(std::int64_t bytes) { return layout::round_up(bytes, layout::kLineBytes); }

template <class Tuned>
SharedPlan plan_dispatch(const DispatchParams& params, bool has_tma) {
  using Bulk = primitives::TmaBulk<Tuned::kTuning.stages>;
  const layout::TableShape& shape = params.routing.tables.shape;
  SharedPlan plan;
  const std::int64_t tally_bytes = std::int64_t{8} * shape.num_ranks;
  std::fill_n(plan.scratch_bytes, DispatchTuning::kNumRoles, lines(tally_bytes));
  plan.scratch_bytes[static_cast<int>(DispatchRole::kRoute)] = lines(RouteScratch::bytes(shape));
  plan.scratch_bytes[static_cast<int>(DispatchRole::kSend)] = lines(SendScratch::bytes(shape));
  plan.scratch_bytes[static_cast<int>(DispatchRole::kRecord)] = lines(RecordScratch::bytes(shape));
  if (has_tma) {
    plan.stage_bytes =
        lines(params.x.row_bytes + (params.pipes_scales ? params.scales.row_bytes : 0));
    for (const DispatchRole role : {DispatchRole::kSend, DispatchRole::kCopy}) {
      plan.pipe_bytes[static_cast<int>(role)] = Bulk::shared_bytes(plan.stage_bytes);
    }
  }
  return plan;
}

template <class Tuned>
SharedPlan plan_combine(const CombineParams& params, bool has_tma) {
  using Reducer = primitives::BulkRowReducer<Tuned::kTuning.term_slots>;
  SharedPlan plan;
  plan.scratch_bytes[static_cast<int>(CombineRole::kPull)] =
      lines(PullScratch::bytes(params.routing.tables.shape));
  if (has_tma) {
    for (const CombineRole role : {CombineRole::kPull, CombineRole::kPush})
      plan.pipe_bytes[static_cast<int>(role)] = lines(Reducer::shared_bytes());
  }
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

/// Rows taken in twos end together; a chunk that announces itself has one sender.
int ticket_tokens(const DispatchParams& params) {
  return params.copies_at_receiver ? layout::kChunkTokens : 2;
}
int ticket_tokens(const CombineParams& /*params*/) { return 2; }

/// One kernel and how it is launched.
template <class Tuning, class Params>
struct KernelLaunch {
  void (*kernel)(Params, SharedPlan);
  Tuning tuning;
  SharedPlan plan;

  Status run(const Stream& stream, const Params& params, int num_sms) const {
    Params launched = params;
    launched.ticket_tokens = ticket_tokens(params);
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
  const auto kernel = combine_kernel<Tuned>;
  const Result<KernelLimits> limits = query_limits(kernel);
  if (!limits.ok()) return limits.status();
  const KernelLaunch<CombineTuning, CombineParams> launch{
      kernel, Tuned::kTuning, plan_combine<Tuned>(params, limits->has_tma)};
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
