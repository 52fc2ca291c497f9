// SPDX-License-Identifier: Apache-2.0
// Runs operations on a GPU: queued on the caller's stream when launched.
#pragma once

#include "core/engine.h"

#include <ep/status.h>

#include <memory>

namespace ep::core {

/// Of the calling thread. Errors: kUnsupported (no GPU, or a driver that is too old), kCuda.
Result<int> current_cuda_device();

/// Order: every operation of the group waits for the one before it, whatever its stream. Captured
/// operations are ordered within their capture; between a graph and everything else the order is
/// that of the streams that the caller launches it in. A captured operation takes its share of the
/// pool with it: the blocks are free again when the graph is gone.
/// Errors: kUnsupported (compute capability below 8.0), kCuda.
Result<std::unique_ptr<Engine>> create_cuda_engine(int device);

}  // namespace ep::core
