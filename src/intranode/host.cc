// SPDX-License-Identifier: Apache-2.0
// Instantiates the intranode roles for the host executor and launches them; nothing else.
#include "intranode/host.h"

#include "intranode/combine_roles.h"
#include "intranode/dispatch_roles.h"
#include "primitives/host_exec.h"

#include <algorithm>
#include <vector>

namespace ep::intranode {
namespace {

using primitives::HostExec;
using primitives::Lane;
using primitives::SoloGroup;

template <class Params>
using RoleBody = void (*)(SoloGroup, const Params&, const Lane&);

/// Runs the bodies as the roles of one launch.
template <class Params>
void launch(fabric::HostLauncher& launcher, Params& params, int num_channels,
            const std::vector<RoleBody<Params>>& bodies) {
  params.op.num_lanes = num_channels * static_cast<int>(bodies.size());
  std::vector<fabric::HostLauncher::Role> roles;
  for (RoleBody<Params> body : bodies) {
    roles.emplace_back([body, &params](const Lane& lane) { body(SoloGroup{}, params, lane); });
  }
  const std::int64_t scratch_bytes = std::max(RouteScratch::bytes(params.routing.tables.shape),
                                              PullLane<HostExec, SoloGroup>::scratch_bytes(params.op));
  launcher.run({.num_channels = num_channels, .roles = roles, .scratch_bytes = scratch_bytes});
}

}  // namespace

void launch_dispatch(fabric::HostLauncher& launcher, DispatchParams params, int num_channels) {
  std::vector<RoleBody<DispatchParams>> bodies = {route_role<HostExec, SoloGroup>};
  if (params.has_moves) {
    bodies.push_back(send_role<HostExec, SoloGroup>);
    if (params.has_expert_rows()) bodies.push_back(pad_role<HostExec, SoloGroup>);
    if (params.has_records) bodies.push_back(record_role<HostExec, SoloGroup>);
    if (params.copies_at_receiver) bodies.push_back(copy_role<HostExec, SoloGroup>);
  }
  launch(launcher, params, num_channels, bodies);
}

void launch_combine(fabric::HostLauncher& launcher, CombineParams params, int num_channels) {
  std::vector<RoleBody<CombineParams>> bodies = {prepare_role<HostExec, SoloGroup>};
  if (params.op.rejection == layout::kAccepted) {
    bodies.push_back(pull_role<HostExec, SoloGroup>);
    if (params.pushes || params.is_staged) bodies.push_back(push_role<HostExec, SoloGroup>);
  }
  launch(launcher, params, num_channels, bodies);
}

}  // namespace ep::intranode
