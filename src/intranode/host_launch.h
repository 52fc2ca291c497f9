// SPDX-License-Identifier: Apache-2.0
// The roles of an operation as lanes of a HostLauncher, for any executor whose lanes are one
// thread.
#pragma once

#include "fabric/host/launcher.h"
#include "intranode/combine_roles.h"
#include "intranode/dispatch_roles.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace ep::intranode {

template <class Params, class Role>
struct RoleBody {
  Role role;
  void (*run)(primitives::SoloGroup, const Params&, const primitives::Lane&);
};

template <primitives::Executor Exec>
inline constexpr RoleBody<DispatchParams, DispatchRole> kDispatchBodies[] = {
    {DispatchRole::kRoute, route_role<Exec, primitives::SoloGroup>},
    {DispatchRole::kSend, send_role<Exec, primitives::SoloGroup>},
    {DispatchRole::kCopy, copy_role<Exec, primitives::SoloGroup>},
};
template <primitives::Executor Exec>
inline constexpr RoleBody<CombineParams, CombineRole> kCombineBodies[] = {
    {CombineRole::kPrepare, prepare_role<Exec, primitives::SoloGroup>},
    {CombineRole::kPull, pull_role<Exec, primitives::SoloGroup>},
    {CombineRole::kPush, push_role<Exec, primitives::SoloGroup>},
};

/// Scratch that a lane of any role needs.
inline std::int64_t scratch_bytes(const layout::TableShape& shape) {
  return std::max({RouteScratch::bytes(shape), SendScratch::bytes(shape), CopyScratch::bytes(shape),
                   RecordScratch::bytes(shape), PullScratch::bytes(shape),
                   PushScratch::bytes(shape)});
}

/// Runs the bodies of the roles that this launch has.
template <primitives::Executor Exec, class Params, class Role>
void launch_roles(fabric::HostLauncher& launcher,
                  const Params& of_caller,
                  int num_channels,
                  std::span<const RoleBody<Params, Role>> bodies) {
  Params params = of_caller;
  std::vector<fabric::HostLauncher::Role> roles;
  for (const RoleBody<Params, Role>& body : bodies) {
    if (!params.has_role(body.role)) continue;
    roles.emplace_back([&body, &params](const primitives::Lane& lane) {
      body.run(primitives::SoloGroup{}, params, lane);
    });
  }
  params.op.num_lanes = num_channels * static_cast<int>(roles.size());
  launcher.run({.num_channels = num_channels,
                .roles = roles,
                .scratch_bytes = scratch_bytes(params.routing.tables.shape)});
}

}  // namespace ep::intranode
