// SPDX-License-Identifier: Apache-2.0
// The libfabric transport of a build without libfabric's headers.
#include "fabric/ofi/ofi.h"

namespace ep::fabric {

Result<std::unique_ptr<Transport>> make_ofi_transport(Bootstrap& /*bootstrap*/,
                                                      const OfiConfig& /*config*/,
                                                      base::Deadline /*deadline*/) {
  return Status(Errc::kUnsupported,
                "ofi: this build has no libfabric: install libfabric-dev and configure again with "
                "EP_WITH_OFI=ON");
}

}  // namespace ep::fabric
