// SPDX-License-Identifier: Apache-2.0
// Instantiates the intranode roles for the host executor and launches them; nothing else.
#include "intranode/host.h"

#include "intranode/host_launch.h"
#include "primitives/host_exec.h"

namespace ep::intranode {

using primitives::HostExec;

void launch_dispatch(fabric::HostLauncher& launcher,
                     const DispatchParams& params,
                     int num_channels) {
  launch_roles<HostExec, DispatchParams, DispatchRole>(launcher, params, num_channels,
                                                       kDispatchBodies<HostExec>);
}

void launch_combine(fabric::HostLauncher& launcher, const CombineParams& params, int num_channels) {
  launch_roles<HostExec, CombineParams, CombineRole>(launcher, params, num_channels,
                                                     kCombineBodies<HostExec>);
}

}  // namespace ep::intranode
