// SPDX-License-Identifier: Apache-2.0
// The intranode kernels: a CTA is a channel, each of its warps is a lane of one role
// (docs/adr/0003).
#pragma once

#include "intranode/combine_roles.h"
#include "intranode/dispatch_roles.h"
#include "primitives/cuda_exec.cuh"

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace ep::intranode {

/// Warps of each role in a CTA, in the order of the roles.
struct DispatchTuning {
  int route_warps = 1;
  int send_warps = 1;
  int copy_warps = 0;
  int stages = 2;  ///< of each row pipe

  using Role = DispatchRole;
  static constexpr int kNumRoles = 3;

  EP_HOST_DEVICE constexpr int warps_of(DispatchRole role) const {
    switch (role) {
      case DispatchRole::kRoute:
        return route_warps;
      case DispatchRole::kSend:
        return send_warps;
      case DispatchRole::kCopy:
        return copy_warps;
    }
    return 0;
  }
};

struct CombineTuning {
  int prepare_warps = 1;
  int pull_warps = 1;
  int push_warps = 0;
  int ring_bytes = primitives::min_ring_bytes(primitives::kMaxTopk);  ///< of each row reducer
  bool is_flat = false;  ///< for kFlat; else for kExpertMajor
  int stages = 1;        ///< of each row pipe: owners of kFlat push rows as they are

  using Role = CombineRole;
  static constexpr int kNumRoles = 3;

  EP_HOST_DEVICE constexpr int warps_of(CombineRole role) const {
    switch (role) {
      case CombineRole::kPrepare:
        return prepare_warps;
      case CombineRole::kPull:
        return pull_warps;
      case CombineRole::kPush:
        return push_warps;
    }
    return 0;
  }
};

/// Warps of the roles before `role`.
template <class Tuning>
EP_HOST_DEVICE constexpr int first_warp_of(const Tuning& tuning, typename Tuning::Role role) {
  int first = 0;
  for (int earlier = 0; earlier < static_cast<int>(role); ++earlier) {
    first += tuning.warps_of(static_cast<typename Tuning::Role>(earlier));
  }
  return first;
}

template <class Tuning>
EP_HOST_DEVICE constexpr int num_warps(const Tuning& tuning) {
  return first_warp_of(tuning, static_cast<typename Tuning::Role>(Tuning::kNumRoles));
}

template <class Tuning>
EP_HOST_DEVICE constexpr int num_threads(const Tuning& tuning) {
  return num_warps(tuning) * primitives::kWarpThreads;
}

/// With a constant tuning, roles without warps leave no code behind.
template <class Tuning>
EP_HOST_DEVICE constexpr typename Tuning::Role role_of(const Tuning& tuning, int warp) {
  for (int i = Tuning::kNumRoles - 1; i > 0; --i) {
    const auto role = static_cast<typename Tuning::Role>(i);
    if (tuning.warps_of(role) > 0 && warp >= first_warp_of(tuning, role)) return role;
  }
  return static_cast<typename Tuning::Role>(0);
}

/// How a CTA's shared memory is divided: a part for each warp, of one size per role.
struct SharedPlan {
  static constexpr int kMaxRoles = DispatchTuning::kNumRoles;

  std::int64_t scratch_bytes[kMaxRoles] = {};  ///< per lane, by role; multiples of a line
  std::int64_t pipe_bytes[kMaxRoles] = {};     ///< behind the scratch of the same lane
  std::int64_t stage_bytes = 0;

  EP_HOST_DEVICE constexpr std::int64_t lane_bytes(int role) const {
    return scratch_bytes[role] + pipe_bytes[role];
  }
};

template <class Tuning>
EP_HOST_DEVICE constexpr std::int64_t total_bytes(const SharedPlan& plan, const Tuning& tuning) {
  std::int64_t bytes = 0;
  for (int role = 0; role < Tuning::kNumRoles; ++role) {
    bytes += plan.lane_bytes(role) * tuning.warps_of(static_cast<typename Tuning::Role>(role));
  }
  return bytes;
}

/// The lane of a warp that has this role.
template <class Tuning>
EP_DEVICE primitives::Lane make_lane(const SharedPlan& plan,
                                     const Tuning& tuning,
                                     typename Tuning::Role role) {
  extern __shared__ __align__(128) std::byte shared_memory[];
  const int warp = static_cast<int>(threadIdx.x) / primitives::kWarpThreads;
  const int own = static_cast<int>(role);
  std::int64_t offset = plan.lane_bytes(own) * (warp - first_warp_of(tuning, role));
#pragma unroll
  for (int earlier = 0; earlier < Tuning::kNumRoles; ++earlier) {
    if (earlier < own)
      offset +=
          plan.lane_bytes(earlier) * tuning.warps_of(static_cast<typename Tuning::Role>(earlier));
  }
  return {.channel = static_cast<int>(blockIdx.x),
          .scratch = layout::array_at<std::byte>(shared_memory, offset),
          .stages = layout::array_at<std::byte>(shared_memory, offset + plan.scratch_bytes[own]),
          .stage_bytes = plan.stage_bytes};
}

/// Tests see where the CTAs of an operation run.
EP_DEVICE inline void count_cta(const primitives::OpParams& op) {
  if (op.ctas_by_sm == nullptr || threadIdx.x != 0) return;
  // Relaxed: read when the launch has ended.
  primitives::CudaMemory::add_relaxed_gpu(op.ctas_by_sm + primitives::sm_id(), 1U);
}

// A kernel's tuning is the constant of a type: nvcc 13.0 writes host stubs that do not compile for
// a class-type template argument whose type, or whose name, lives in a namespace.
template <class Tuned>
__global__ void __launch_bounds__(num_threads(Tuned::kTuning), 1)
    dispatch_kernel(const __grid_constant__ DispatchParams params,
                    const __grid_constant__ SharedPlan plan) {
  constexpr auto tuning = Tuned::kTuning;
  using Exec = primitives::CudaExec<tuning.stages>;
  const auto group = primitives::WarpGroup::this_warp();
  count_cta(params.op);
  const DispatchRole role =
      role_of(tuning, static_cast<int>(threadIdx.x) / primitives::kWarpThreads);
  if (!params.has_role(role)) return;
  const primitives::Lane lane = make_lane(plan, tuning, role);
  switch (role) {
    case DispatchRole::kRoute:
      return route_role<Exec>(group, params, lane);
    case DispatchRole::kSend:
      return send_role<Exec>(group, params, lane);
    case DispatchRole::kCopy:
      return copy_role<Exec>(group, params, lane);
  }
}

/// What a combine kernel is made of: one layout's lookups and lanes, not both.
template <class Tuned>
struct CombineTypes {
  static constexpr auto kTuning = Tuned::kTuning;
  static constexpr auto kSums =
      kTuning.is_flat ? primitives::SumShape::kSingleTermHops : primitives::SumShape::kAny;
  using Warp = primitives::WarpGroup;
  using Exec = primitives::CudaExec<kTuning.stages, kTuning.ring_bytes, kSums>;
  using Terms = std::conditional_t<kTuning.is_flat, FlatTerms<Exec, Warp>, ExpertTerms<Exec, Warp>>;
  using PushLane =
      std::conditional_t<kTuning.is_flat, CopyPushLane<Exec, Warp>, SumPushLane<Exec, Warp>>;
};

template <class Tuned>
__global__ void __launch_bounds__(num_threads(Tuned::kTuning), 1)
    combine_kernel(const __grid_constant__ CombineParams params,
                   const __grid_constant__ SharedPlan plan) {
  constexpr auto tuning = Tuned::kTuning;
  using Types = CombineTypes<Tuned>;
  using Exec = typename Types::Exec;
  const auto group = primitives::WarpGroup::this_warp();
  count_cta(params.op);
  const CombineRole role =
      role_of(tuning, static_cast<int>(threadIdx.x) / primitives::kWarpThreads);
  if (!params.has_role(role)) return;
  const primitives::Lane lane = make_lane(plan, tuning, role);
  switch (role) {
    case CombineRole::kPrepare:
      return prepare_role<Exec>(group, params, lane);
    case CombineRole::kPull:
      return pull_rows<typename Types::Terms, Exec>(group, params, lane);
    case CombineRole::kPush:
      return push_rows<typename Types::PushLane, Exec>(group, params, lane);
  }
}

}  // namespace ep::intranode
