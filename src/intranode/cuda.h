// SPDX-License-Identifier: Apache-2.0
// Launches the intranode roles on a GPU.
#pragma once

#include "intranode/combine_params.h"
#include "intranode/dispatch_params.h"

#include <ep/status.h>
#include <ep/stream.h>

#include <cstdint>

namespace ep::intranode {

/// The kernels of this module on one device.
struct LoadedKernels {
  std::int64_t max_shared_bytes = 0;  ///< of a CTA
  bool has_tma = false;
};

/// Loads all kernels on the current device: a kernel that is loaded while another one spins would
/// wait for it. Errors: kCuda.
Result<LoadedKernels> load_kernels();

/// One kernel of `num_sms` CTAs on the stream of the current device; returns when it is queued,
/// never waits for it. Addresses in `params` are the device's. Rows, their strides and addresses
/// are multiples of 16 bytes, else kInvalidArgument. kUnsupported if a row is too large to be
/// staged in shared memory.
Status launch_dispatch(const LoadedKernels& loaded,
                       const Stream& stream,
                       const DispatchParams& params,
                       int num_sms);
Status launch_combine(const LoadedKernels& loaded,
                      const Stream& stream,
                      const CombineParams& params,
                      int num_sms);

}  // namespace ep::intranode
