// SPDX-License-Identifier: Apache-2.0
// A Transport over libfabric: any network that it has a provider for, TCP on a plain machine.
#pragma once

#include "base/deadline.h"
#include "fabric/net/transport.h"

#include <ep/bootstrap.h>
#include <ep/status.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ep::fabric {

struct OfiConfig {
  /// As fi_info prints it: "net", "tcp;ofi_rxm". Empty: EP_NET_PROVIDER, else the first that exists
  /// of efa, cxi, verbs;ofi_rxm, tcp, net.
  std::optional<std::string> provider{};
  /// Interface ("eth0"), address ("10.0.0.1") or subnet ("10.0.0.0/24"). Empty: EP_NET_INTERFACE,
  /// else the first that is no loopback.
  std::optional<std::string> interface {};
  int num_contexts = 1;
  /// False: kUnordered whatever the provider does.
  bool may_be_ordered = true;
  /// Providers whose order is relied on, where the start-up test saw it too. Empty: those of
  /// README.md.
  std::optional<std::vector<std::string>> ordered_providers{};
};

inline constexpr int kMaxOfiContexts = 128;

/// Collective: every rank opens its endpoints, learns the addresses of the others and tests with
/// them what the provider really does. Until that is over a rank that fails tells the others.
/// Errors: kUnsupported without libfabric, without a provider, or for a provider that lacks what
/// ep needs (with what was seen); kInvalidArgument for a provider or interface that is not there
/// (with those that are) and for ranks that chose differently; kPeerTimeout naming the rank that
/// did not answer; kFabric.
Result<std::unique_ptr<Transport>> make_ofi_transport(Bootstrap& bootstrap,
                                                      const OfiConfig& config,
                                                      base::Deadline deadline);

}  // namespace ep::fabric
