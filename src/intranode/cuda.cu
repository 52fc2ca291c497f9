// SPDX-License-Identifier: Apache-2.0
// Instantiates the intranode roles for the CUDA executor and launches them; nothing else.
#include "base/check.h"
#include "fabric/cuda/status.h"
#include "intranode/cuda.h"
#include "intranode/cuda_kernels.cuh"

#include <cuda_runtime.h>

#include <algorithm>
#include <string>

namespace ep::intranode {
namespace {

using primitives::CudaExec;
using primitives::WarpGroup;

/// One thread starts the copies of a row in about 1.3 us, whatever its size: small rows take more
/// senders.
struct SmallRowDispatch {
  static constexpr DispatchTuning kTuning{.route_warps = 7, .send_warps = 5, .stages = 5};
};
struct FlatDispatch {
  static constexpr DispatchTuning kTuning{.route_warps = 9, .send_warps = 3, .stages = 4};
};
struct ExpertDispatch {
  static constexpr DispatchTuning kTuning{
      .route_warps = 4, .send_warps = 2, .copy_warps = 3, .stages = 3};
};
/// Any layout, for rows so large that there is room for few stages.
struct LargeRowDispatch {
  static constexpr DispatchTuning kTuning{
      .route_warps = 6, .send_warps = 1, .copy_warps = 1, .stages = 2};
};
/// Flat rows: parts of a quarter of a row for two ranks.
struct FlatCombine {
  static constexpr CombineTuning kTuning{
      .prepare_warps = 1, .pull_warps = 14, .ring_bytes = 15 << 10, .is_flat = true};
};
struct PullCombine {
  static constexpr CombineTuning kTuning{
      .prepare_warps = 1, .pull_warps = 7, .ring_bytes = 28 << 10};
};
/// kExpertMajor by push: an owner's sums have as many terms as those of the token's rank.
struct PushCombine {
  static constexpr CombineTuning kTuning{
      .prepare_warps = 1, .pull_warps = 4, .push_warps = 3, .ring_bytes = 28 << 10};
};
/// kFlat through the ring: rows are copied as they are.
struct StagedCombine {
  static constexpr CombineTuning kTuning{.prepare_warps = 1,
                                         .pull_warps = 7,
                                         .push_warps = 2,
                                         .ring_bytes = 14 << 10,
                                         .is_flat = true,
                                         .stages = 4};
};
/// Any kFlat combine, for so many ranks that a sum needs more of shared memory.
struct ManyTermsCombine {
  static constexpr CombineTuning kTuning{.prepare_warps = 1,
                                         .pull_warps = 5,
                                         .push_warps = 2,
                                         .ring_bytes = 16 << 10,
                                         .is_flat = true,
                                         .stages = 4};
};
/// A row that is larger passes through a pipe of a combine in pieces.
constexpr std::int64_t kMaxPieceBytes = 14 << 10;

/// Bulk copies exist from this compute capability on, in tens; below it nothing is staged.
constexpr int kFirstTmaVersion = 90;

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
  plan.scratch_bytes[static_cast<int>(DispatchRole::kRoute)] =
      lines(std::max(RouteScratch::bytes(shape), RecordScratch::bytes(shape)));
  plan.scratch_bytes[static_cast<int>(DispatchRole::kSend)] = lines(SendScratch::bytes(shape));
  plan.scratch_bytes[static_cast<int>(DispatchRole::kCopy)] = lines(CopyScratch::bytes(shape));
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
  constexpr auto kTuning = Tuned::kTuning;
  SharedPlan plan;
  plan.scratch_bytes[static_cast<int>(CombineRole::kPull)] =
      lines(PullScratch::bytes(params.routing.tables.shape));
  plan.scratch_bytes[static_cast<int>(CombineRole::kPush)] =
      lines(PushScratch::bytes(params.routing.tables.shape));
  if (!has_tma) return plan;
  for (const CombineRole role : {CombineRole::kPull, CombineRole::kPush})
    plan.pipe_bytes[static_cast<int>(role)] =
        lines(primitives::TermRing<kTuning.ring_bytes>::shared_bytes());
  if constexpr (kTuning.is_flat) {
    using Bulk = primitives::TmaBulk<kTuning.stages>;
    const std::int64_t num_pieces = layout::div_up(params.rows.row_bytes, kMaxPieceBytes);
    plan.stage_bytes = lines(layout::div_up(params.rows.row_bytes, num_pieces));
    plan.pipe_bytes[static_cast<int>(CombineRole::kPush)] = Bulk::shared_bytes(plan.stage_bytes);
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

/// By ones a lane waits for its tickets (fp8, 12 SMs: 186 us instead of 145), by eights lanes end
/// unevenly. The tokens of a ticket are looked up together where rows go to experts.
int ticket_tokens(const DispatchParams& params) { return params.has_expert_rows() ? 4 : 2; }
/// Few SMs are kept busy by lanes that look up two tokens at once; where the wire is full, lanes
/// should end together (12 SMs: 200 us instead of 202 by ones, 8 SMs: 248 instead of 239).
int ticket_tokens(const CombineParams& /*params*/, int num_sms) {
  constexpr int kFullWireSms = 12;
  return num_sms < kFullWireSms ? 2 : 1;
}

/// An owner waits for the wire once per ticket of copied rows. Sums take long, and the fewer rows
/// of the ring a lane claims at once the sooner the reader has them: about one pair per ticket.
int push_ticket_tokens(const CombineParams& params) {
  if (!params.has_expert_rows()) return layout::kChunkTokens;
  const layout::TableShape& shape = params.routing.tables.shape;
  int num_tokens = 1;
  while (num_tokens < layout::kChunkTokens && num_tokens * shape.topk < shape.num_ranks)
    num_tokens *= 2;
  return num_tokens;
}

/// Terms of most sums of a push: a rank's own rows, and one for each of the others.
int usual_terms(const CombineParams& params) {
  const layout::TableShape& shape = params.routing.tables.shape;
  const int terms = shape.topk / shape.num_ranks + shape.num_ranks - 1;
  return params.pushes ? std::min(terms, params.sum.max_terms) : params.sum.max_terms;
}

/// What only speed depends on.
void tune(DispatchParams& params, int /*num_sms*/) { params.ticket_tokens = ticket_tokens(params); }
void tune(CombineParams& params, int num_sms) {
  params.ticket_tokens = ticket_tokens(params, num_sms);
  params.push_ticket_tokens = push_ticket_tokens(params);
  params.sum.usual_terms = usual_terms(params);
}

/// One kernel and how it is launched.
template <class Tuning, class Params>
struct KernelLaunch {
  void (*kernel)(Params, SharedPlan);
  Tuning tuning;
  SharedPlan plan;

  Status run(const Stream& stream, const Params& params, int num_sms) const {
    Params launched = params;
    tune(launched, num_sms);
    launched.op.num_lanes = num_sms * num_lanes_of(tuning, params);
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(num_sms));
    config.blockDim = dim3(static_cast<unsigned>(num_threads(tuning)));
    config.dynamicSmemBytes = static_cast<std::size_t>(total_bytes(plan, tuning));
    config.stream = static_cast<cudaStream_t>(stream.handle);
    return fabric::cuda_status(cudaLaunchKernelEx(&config, kernel, launched, plan),
                               "cudaLaunchKernelEx");
  }
};

/// Launches with the first tuning whose shared memory fits.
template <class Tuned, class... Further>
Status run_dispatch(const LoadedKernels& loaded,
                    const Stream& stream,
                    const DispatchParams& params,
                    int num_sms) {
  const SharedPlan plan = plan_dispatch<Tuned>(params, loaded.has_tma);
  const std::int64_t bytes = total_bytes(plan, Tuned::kTuning);
  if (bytes <= loaded.max_shared_bytes) {
    const KernelLaunch<DispatchTuning, DispatchParams> launch{dispatch_kernel<Tuned>,
                                                              Tuned::kTuning, plan};
    return launch.run(stream, params, num_sms);
  }
  if constexpr (sizeof...(Further) > 0) {
    return run_dispatch<Further...>(loaded, stream, params, num_sms);
  } else {
    return Status(Errc::kUnsupported, "dispatch of rows of " + std::to_string(params.x.row_bytes) +
                                          " bytes needs " + std::to_string(bytes) +
                                          " bytes of shared memory, the GPU has " +
                                          std::to_string(loaded.max_shared_bytes));
  }
}

/// Whether the kernel's sums may have as many terms, and its shared memory fits.
template <class Tuned>
bool is_fitting(const LoadedKernels& loaded, const CombineParams& params) {
  return Tuned::kTuning.ring_bytes >= primitives::min_ring_bytes(params.sum.max_terms) &&
         total_bytes(plan_combine<Tuned>(params, loaded.has_tma), Tuned::kTuning) <=
             loaded.max_shared_bytes;
}

/// Launches with the first tuning that fits.
template <class Tuned, class... Further>
Status run_combine(const LoadedKernels& loaded,
                   const Stream& stream,
                   const CombineParams& params,
                   int num_sms) {
  if (!is_fitting<Tuned>(loaded, params)) {
    if constexpr (sizeof...(Further) > 0) {
      return run_combine<Further...>(loaded, stream, params, num_sms);
    } else {
      return Status(Errc::kUnsupported,
                    "combine of sums of up to " + std::to_string(params.sum.max_terms) +
                        " terms: the kernel has " + std::to_string(Tuned::kTuning.ring_bytes) +
                        " bytes for them, of " + std::to_string(loaded.max_shared_bytes) +
                        " bytes of shared memory");
    }
  }
  const KernelLaunch<CombineTuning, CombineParams> launch{
      combine_kernel<Tuned>, Tuned::kTuning, plan_combine<Tuned>(params, loaded.has_tma)};
  return launch.run(stream, params, num_sms);
}

/// The kernel may use all of an SM's shared memory from now on. Adds what it is to `loaded`.
template <class Kernel>
Status load_kernel(Kernel kernel, LoadedKernels& loaded) {
  cudaFuncAttributes attributes;
  EP_TRY(fabric::cuda_status(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes"));
  loaded.has_tma = attributes.binaryVersion >= kFirstTmaVersion;
  return fabric::cuda_status(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(loaded.max_shared_bytes)),
      "cudaFuncSetAttribute");
}

}  // namespace

Result<LoadedKernels> load_kernels() {
  int device = 0;
  EP_TRY(fabric::cuda_status(cudaGetDevice(&device), "cudaGetDevice"));
  int max_bytes = 0;
  EP_TRY(fabric::cuda_status(
      cudaDeviceGetAttribute(&max_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
      "cudaDeviceGetAttribute"));
  LoadedKernels loaded{.max_shared_bytes = max_bytes};
  EP_TRY(load_kernel(dispatch_kernel<SmallRowDispatch>, loaded));
  EP_TRY(load_kernel(dispatch_kernel<FlatDispatch>, loaded));
  EP_TRY(load_kernel(dispatch_kernel<ExpertDispatch>, loaded));
  EP_TRY(load_kernel(dispatch_kernel<LargeRowDispatch>, loaded));
  EP_TRY(load_kernel(combine_kernel<FlatCombine>, loaded));
  EP_TRY(load_kernel(combine_kernel<PullCombine>, loaded));
  EP_TRY(load_kernel(combine_kernel<PushCombine>, loaded));
  EP_TRY(load_kernel(combine_kernel<StagedCombine>, loaded));
  EP_TRY(load_kernel(combine_kernel<ManyTermsCombine>, loaded));
  return loaded;
}

Status launch_dispatch(const LoadedKernels& loaded,
                       const Stream& stream,
                       const DispatchParams& params,
                       int num_sms) {
  EP_TRY(check_rows("x", params.x));
  if (params.has_expert_rows())
    return run_dispatch<ExpertDispatch, LargeRowDispatch>(loaded, stream, params, num_sms);
  return run_dispatch<SmallRowDispatch, FlatDispatch, LargeRowDispatch>(loaded, stream, params,
                                                                        num_sms);
}

Status launch_combine(const LoadedKernels& loaded,
                      const Stream& stream,
                      const CombineParams& params,
                      int num_sms) {
  EP_TRY(check_rows("expert rows", params.rows));
  EP_TRY(check_rows("bias", params.bias));
  const bool is_pushing = params.has_role(CombineRole::kPush);
  if (params.has_expert_rows()) {
    return is_pushing ? run_combine<PushCombine>(loaded, stream, params, num_sms)
                      : run_combine<PullCombine>(loaded, stream, params, num_sms);
  }
  return is_pushing ? run_combine<StagedCombine, ManyTermsCombine>(loaded, stream, params, num_sms)
                    : run_combine<FlatCombine, ManyTermsCombine>(loaded, stream, params, num_sms);
}

}  // namespace ep::intranode
