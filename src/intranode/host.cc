// SPDX-License-Identifier: Apache-2.0
// Instantiates the intranode roles for the host executor and launches them; nothing else.
#include "intranode/host.h"

#include "intranode/combine_roles.h"
#include "intranode/dispatch_roles.h"
#include "primitives/host_exec.h"

#include <algorithm>
#include <span>
#include <vector>

namespace ep::intranode {
namespace {

using primitives::HostExec;
using primitives::Lane;
using primitives::SoloGroup;

template <class Params, class Role>
struct RoleBody {
  Role role;
  void (*run)(SoloGroup, const Params&, const Lane&);
};

constexpr RoleBody<DispatchParams, DispatchRole> kDispatchBodies[] = {
    {DispatchRole::kRoute, route_role<HostExec, SoloGroup>},
    {DispatchRole::kSend, send_role<HostExec, SoloGroup>},
    {DispatchRole::kRecord, record_role<HostExec, SoloGroup>},
    {DispatchRole::kPad, pad_role<HostExec, SoloGroup>},
    {DispatchRole::kCopy, copy_role<HostExec, SoloGroup>},
};
constexpr RoleBody<CombineParams, CombineRole> kCombineBodies[] = {
    {CombineRole::kPrepare, prepare_role<HostExec, SoloGroup>},
    {CombineRole::kPull, pull_role<HostExec, SoloGroup>},
    {CombineRole::kPush, push_role<HostExec, SoloGroup>},
};

/// Runs the bodies of the roles that this launch has.
template <class Params, class Role>
void launch(fabric::HostLauncher& launcher,
            Params& params,
            int num_channels,
            std::span<const RoleBody<Params, Role>> bodies) {
  std::vector<fabric::HostLauncher::Role> roles;
  for (const RoleBody<Params, Role>& body : bodies) {
    if (!params.has_role(body.role)) continue;
    roles.emplace_back([&body, &params](const Lane& lane) { body.run(SoloGroup{}, params, lane); });
  }
  params.op.num_lanes = num_channels * static_cast<int>(roles.size());
  const std::int64_t scratch_bytes =
      std::max(RouteScratch::bytes(params.routing.tables.shape),
               PullLane<HostExec, SoloGroup>::scratch_bytes(params.op));
  launcher.run({.num_channels = num_channels, .roles = roles, .scratch_bytes = scratch_bytes});
}

}  // namespace

void launch_dispatch(fabric::HostLauncher& launcher, DispatchParams params, int num_channels) {
  launch<DispatchParams, DispatchRole>(launcher, params, num_channels, kDispatchBodies);
}

void launch_combine(fabric::HostLauncher& launcher, CombineParams params, int num_channels) {
  launch<CombineParams, CombineRole>(launcher, params, num_channels, kCombineBodies);
}

}  // namespace ep::intranode
