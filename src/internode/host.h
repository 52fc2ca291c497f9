// SPDX-License-Identifier: Apache-2.0
// Launches the operations of a group of several nodes on host channels.
#pragma once

#include "fabric/host/launcher.h"
#include "fabric/net/net_engine.h"
#include "internode/rail_params.h"
#include "intranode/combine_params.h"
#include "intranode/dispatch_params.h"

namespace ep::internode {

/// What reaches the other nodes. Window 0 of the engine is segment 0 of the arena.
struct HostRail {
  RailParams params;
  fabric::NetEngine* engine = nullptr;
};

/// Run the roles of this rank's operation, and those of its delegates; return when all have ended.
void launch_dispatch(fabric::HostLauncher& launcher,
                     const HostRail& rail,
                     const intranode::DispatchParams& params,
                     int num_channels);
void launch_combine(fabric::HostLauncher& launcher,
                    const HostRail& rail,
                    const intranode::CombineParams& params,
                    int num_channels);

}  // namespace ep::internode
