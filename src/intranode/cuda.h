// SPDX-License-Identifier: Apache-2.0
// Launches the intranode roles on a GPU.
#pragma once

#include "intranode/combine_params.h"
#include "intranode/dispatch_params.h"

#include <ep/status.h>
#include <ep/stream.h>

namespace ep::intranode {

/// One kernel of `num_sms` CTAs on the stream of the current device; returns when it is queued,
/// never waits for it. Addresses in `params` are the device's. Rows, their strides and addresses
/// are multiples of 16 bytes, else kInvalidArgument. kUnsupported if a row is too large to be
/// staged in shared memory.
Status launch_dispatch(const Stream& stream, const DispatchParams& params, int num_sms);
Status launch_combine(const Stream& stream, const CombineParams& params, int num_sms);

/// Loads every kernel onto the current device: a module that is loaded while a kernel spins would
/// wait for it.
Status load_kernels();

}  // namespace ep::intranode
