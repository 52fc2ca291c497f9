// SPDX-License-Identifier: Apache-2.0
// Memory that the network may read and write.
#pragma once

#include "fabric/ofi/description.h"
#include "fabric/ofi/fid_ptr.h"
#include "fabric/ofi/library.h"

#include <ep/status.h>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace ep::fabric {

/// What the provider demands of registrations.
struct RegistrationRules {
  int mr_mode = 0;  ///< FI_MR_... bits that came back from libfabric
  std::size_t key_bytes = 0;
};

class Registration {
 public:
  /// One for all endpoints, or one for each where the provider binds them (FI_MR_ENDPOINT).
  /// Errors: kFabric, kOutOfMemory.
  static Result<Registration> make(const OfiLibrary& library,
                                   fid_domain& domain,
                                   const RegistrationRules& rules,
                                   std::span<fid_ep* const> endpoints,
                                   std::span<std::byte> memory);

  std::span<std::byte> memory() const { return memory_; }
  /// Goes with every access to this memory by its own rank.
  void* local_descriptor(int context) const { return fi_mr_desc(&region(context)); }
  WindowDescription describe() const;

 private:
  Registration(std::span<std::byte> memory, bool has_virtual_addresses)
      : memory_(memory), has_virtual_addresses_(has_virtual_addresses) {}

  Status add_region(const OfiLibrary& library,
                    fid_domain& domain,
                    const RegistrationRules& rules,
                    fid_ep* endpoint);
  fid_mr& region(int context) const {
    return *regions_[regions_.size() == 1 ? 0 : static_cast<std::size_t>(context)];
  }

  std::span<std::byte> memory_;
  bool has_virtual_addresses_;
  std::vector<FidPtr<fid_mr>> regions_;
};

}  // namespace ep::fabric
