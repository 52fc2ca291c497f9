// SPDX-License-Identifier: Apache-2.0
// Bootstrap over a communicator of NCCL, whatever device its buffers lie on.
#pragma once

#include "fabric/bootstrap/nccl_buffers.h"

#include <ep/bootstrap.h>
#include <ep/status.h>

#include <memory>

namespace ep::fabric {

/// make_nccl_bootstrap with the device's part.
Result<std::unique_ptr<Bootstrap>> open_nccl_bootstrap(ncclComm* comm,
                                                       const NcclBootstrapConfig& config,
                                                       const MakeNcclBuffers& make_buffers);

}  // namespace ep::fabric
