// SPDX-License-Identifier: Apache-2.0
// A build without chaos says so.
#include "fabric/chaos/chaos.h"

namespace ep::fabric {

Result<std::unique_ptr<ChaosTransport>> make_chaos_transport(std::unique_ptr<Transport> /*inner*/,
                                                             const ChaosConfig& /*config*/) {
  return Status(Errc::kUnsupported, "this build of ep has no chaos: EP_WITH_CHAOS=OFF");
}

}  // namespace ep::fabric
