// SPDX-License-Identifier: Apache-2.0
// Instantiates the roles between nodes for the host executor and launches them; nothing else.
#include "internode/host.h"

#include "fabric/net/host_net.h"
#include "internode/host_launch.h"
#include "primitives/host_exec.h"

namespace ep::internode {
namespace {

/// Calls launch(net) with the engine's network.
template <class Launch>
void with_net(fabric::NetEngine& engine, Launch launch) {
  if (engine.order() == fabric::ArrivalOrder::kOrdered) {
    fabric::HostNet<fabric::ArrivalOrder::kOrdered> net(engine);
    launch(net);
  } else {
    fabric::HostNet<fabric::ArrivalOrder::kUnordered> net(engine);
    launch(net);
  }
}

}  // namespace

using primitives::HostExec;

void launch_dispatch(fabric::HostLauncher& launcher,
                     const HostRail& rail,
                     const intranode::DispatchParams& params,
                     int num_channels) {
  with_net(*rail.engine, [&](auto& net) {
    launch_dispatch_roles<HostExec>(launcher, rail.params, net, params, num_channels);
  });
}

void launch_combine(fabric::HostLauncher& launcher,
                    const HostRail& rail,
                    const intranode::CombineParams& params,
                    int num_channels) {
  with_net(*rail.engine, [&](auto& net) {
    launch_combine_roles<HostExec>(launcher, rail.params, net, params, num_channels);
  });
}

}  // namespace ep::internode
