// SPDX-License-Identifier: Apache-2.0
// Runs operations on a GPU: queued on the caller's stream when launched.
#pragma once

#include "core/engine.h"

#include <ep/status.h>

#include <memory>

namespace ep::core {

/// Of the calling thread, once it has all that fabric::open_device() asks for. Errors: as that.
Result<int> current_cuda_device();

/// Order: every operation of the group waits for the one before it, whatever its stream. Captured
/// operations are ordered within their capture; between a graph and everything else the order is
/// that of the streams that the caller launches it in. A captured operation takes its share of the
/// pool with it: the blocks are free again when the graph is gone.
/// `device` is one of current_cuda_device(). Errors: kCuda.
Result<std::unique_ptr<Engine>> create_cuda_engine(int device);

}  // namespace ep::core
