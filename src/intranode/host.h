// SPDX-License-Identifier: Apache-2.0
// Launches the intranode roles on the host executor.
#pragma once

#include "fabric/host/launcher.h"
#include "intranode/combine_params.h"
#include "intranode/dispatch_params.h"

namespace ep::intranode {

/// Runs this rank's roles; returns when they have ended, in success or because the group gave up.
void launch_dispatch(fabric::HostLauncher& launcher,
                     const DispatchParams& params,
                     int num_channels);
void launch_combine(fabric::HostLauncher& launcher, const CombineParams& params, int num_channels);

}  // namespace ep::intranode
