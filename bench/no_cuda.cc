// SPDX-License-Identifier: Apache-2.0
// In place of the CUDA sources where the build has no CUDA backend.
#include "bench/device.h"
#include "bench/gpu_info.h"
#include "bench/p2p.h"

namespace ep::bench {
namespace {

Status without_cuda() {
  return Status(Errc::kUnsupported, "this ep-bench was built without EP_WITH_CUDA");
}

}  // namespace

bool has_cuda() { return false; }

Result<GpuMachine> read_gpus() { return without_cuda(); }

Result<std::unique_ptr<Device>> make_cuda_device(int /*rank*/) { return without_cuda(); }

Result<std::vector<LinkSample>> measure_links(const LinkPlan& /*plan*/) { return without_cuda(); }

}  // namespace ep::bench
