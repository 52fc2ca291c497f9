// SPDX-License-Identifier: Apache-2.0
// The roles between nodes as lanes of a HostLauncher, for any executor whose lanes are one thread.
#pragma once

#include "fabric/host/launcher.h"
#include "internode/combine_roles.h"
#include "internode/dispatch_roles.h"
#include "intranode/host_launch.h"

#include <cstdint>
#include <vector>

namespace ep::internode {

using LauncherRole = fabric::HostLauncher::Role;

/// A role with this rank's own operation, or with one of its delegates.
template <class Call>
LauncherRole bind(const Call& call,
                  void (*role)(primitives::SoloGroup, const Call&, const primitives::Lane&)) {
  return [&call, role](const primitives::Lane& lane) { role({}, call, lane); };
}
template <class Call>
LauncherRole bind(const Call& call,
                  int index,
                  void (*role)(primitives::SoloGroup, const Call&, int, const primitives::Lane&)) {
  return [&call, index, role](const primitives::Lane& lane) { role({}, call, index, lane); };
}

template <primitives::Executor Exec, primitives::Net N>
void launch_dispatch_roles(fabric::HostLauncher& launcher,
                           const RailParams& rail,
                           N& net,
                           const intranode::DispatchParams& of_caller,
                           int num_channels) {
  using G = primitives::SoloGroup;
  intranode::DispatchParams params = of_caller;
  const bool is_moving = params.is_moving();
  const DispatchCall<N> call{.params = &params,
                             .rail = &rail,
                             .net = &net,
                             .num_rail_lanes = num_channels * (is_moving ? 2 : 1),
                             .num_delegate_lanes = num_channels * (is_moving ? 2 : 1)};
  std::vector<LauncherRole> roles;
  for (const auto& body : intranode::kDispatchBodies<Exec>) {
    if (!params.has_role(body.role)) continue;
    roles.emplace_back(
        [&body, &params](const primitives::Lane& lane) { body.run(G{}, params, lane); });
  }
  roles.push_back(bind(call, post_dispatch_role<Exec, N, G>));
  if (is_moving) roles.push_back(bind(call, rail_role<Exec, N, G>));
  params.op.num_lanes = num_channels * static_cast<int>(roles.size());
  for (int i = 0; i < rail.num_delegates; ++i) {
    roles.push_back(bind(call, i, delegate_route_role<Exec, N, G>));
    if (is_moving) roles.push_back(bind(call, i, forward_role<Exec, N, G>));
  }
  launcher.run({.num_channels = num_channels,
                .roles = roles,
                .scratch_bytes = intranode::scratch_bytes(params.routing.tables.shape)});
}

template <primitives::Executor Exec, primitives::Net N>
void launch_combine_roles(fabric::HostLauncher& launcher,
                          const RailParams& rail,
                          N& net,
                          const intranode::CombineParams& of_caller,
                          int num_channels) {
  using G = primitives::SoloGroup;
  intranode::CombineParams params = of_caller;
  params.ticket_tokens = layout::kChunkTokens;  // a lane frees whole chunks
  const CombineCall<N> call{.params = &params,
                            .rail = &rail,
                            .net = &net,
                            .num_rail_lanes = num_channels * 2,
                            .num_delegate_lanes = num_channels * 2};
  std::vector<LauncherRole> roles;
  for (const auto& body : intranode::kCombineBodies<Exec>) {
    if (body.role == intranode::CombineRole::kPull || !params.has_role(body.role)) continue;
    roles.emplace_back(
        [&body, &params](const primitives::Lane& lane) { body.run(G{}, params, lane); });
  }
  roles.push_back(bind(call, post_combine_role<Exec, N, G>));
  roles.push_back(bind(call, pull_far_role<Exec, N, G>));
  params.op.num_lanes = num_channels * static_cast<int>(roles.size());
  for (int i = 0; i < rail.num_delegates; ++i) {
    roles.push_back(bind(call, i, delegate_prepare_role<Exec, N, G>));
    roles.push_back(bind(call, i, partial_role<Exec, N, G>));
  }
  launcher.run({.num_channels = num_channels,
                .roles = roles,
                .scratch_bytes = intranode::scratch_bytes(params.routing.tables.shape)});
}

}  // namespace ep::internode
