// SPDX-License-Identifier: Apache-2.0
// The NCCL bootstrap of a build without CUDA.
#include <ep/bootstrap.h>

namespace ep {

Result<std::unique_ptr<Bootstrap>> make_nccl_bootstrap(ncclComm* /*comm*/,
                                                       const NcclBootstrapConfig& /*config*/) {
  return Status(Errc::kUnsupported,
                "bootstrap: communicators of NCCL need the CUDA backend, which is not available in "
                "this build");
}

}  // namespace ep
