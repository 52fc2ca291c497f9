// SPDX-License-Identifier: Apache-2.0
// From a TcpBootstrapConfig and the launcher's variables to the settings of a rendezvous.
#pragma once

#include "base/env.h"

#include <ep/bootstrap.h>
#include <ep/status.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace ep::fabric {

inline constexpr int kMaxBootstrapRanks = 65'536;
inline constexpr std::size_t kMaxJobIdBytes = 256;

/// Ports that rank 0 tries, and the others, when none is given: several, since another program may
/// hold one. They lie below the range from which Linux gives ports to outgoing connections.
inline constexpr int kNumDerivedPorts = 16;
inline constexpr int kFirstDerivedPort = 20'000;
inline constexpr int kLastDerivedPort = 31'999;

struct RendezvousSettings {
  int rank = 0;
  int num_ranks = 1;
  /// All ranks are on this host: rank 0 listens on loopback only, or on an abstract Unix socket.
  bool is_single_host = true;
  /// Host of rank 0; empty: an abstract Unix socket named by uid and job id.
  std::optional<std::string> host;
  /// In the order in which rank 0 tries to listen on them. Not empty if there is a host.
  std::vector<int> ports;
  std::string job_id;
  std::string cookie;
  std::chrono::milliseconds timeout{};
};

/// Errors: kInvalidArgument naming variable (or field) and value, or what is missing.
Result<RendezvousSettings> resolve_settings(const TcpBootstrapConfig& config,
                                            const base::EnvLookup& lookup = base::env_text);

/// "localhost", "127.*", "::1".
bool is_loopback_name(const std::string& host);

}  // namespace ep::fabric
