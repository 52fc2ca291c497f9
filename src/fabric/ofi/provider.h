// SPDX-License-Identifier: Apache-2.0
// Which provider, and which of its addresses.
#pragma once

#include "fabric/ofi/library.h"

#include <ep/status.h>

#include <rdma/fabric.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ep::fabric {

struct FreeInfo {
  decltype(&::fi_freeinfo) freeinfo = nullptr;
  void operator()(fi_info* info) const { freeinfo(info); }
};
using InfoPtr = std::unique_ptr<fi_info, FreeInfo>;

/// What a user asked for.
struct ProviderWish {
  std::optional<std::string> provider{};
  std::optional<std::string> interface {};
};

/// What of an fi_info decides.
struct Candidate {
  std::string provider;
  std::string fabric;     ///< of sockets: the subnet
  std::string interface;  ///< "eth0"
  std::string address;    ///< "10.0.0.1"; empty where it is no internet address
};

/// Place of the one that serves the wish best. Errors: kInvalidArgument naming what is there,
/// kUnsupported where nothing is there that may be taken unasked.
Result<std::size_t> choose_provider(std::span<const Candidate> candidates,
                                    const ProviderWish& wish);

/// Asks libfabric once per process, which takes it a tenth of a second. Errors as choose_provider,
/// and kUnsupported where libfabric has no provider that can write with immediates.
Result<InfoPtr> find_provider(const OfiLibrary& library, const ProviderWish& wish);

/// Providers of which an immediate tells that all earlier writes of its endpoint to this one have
/// landed: a TCP stream, or one reliable connection.
bool keeps_order(const std::string& provider);

}  // namespace ep::fabric
