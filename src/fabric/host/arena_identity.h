// SPDX-License-Identifier: Apache-2.0
// What a rank tells of itself before arenas connect.
#pragma once

#include "fabric/host/segment_registry.h"

#include <ep/bootstrap.h>
#include <ep/status.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ep::fabric {

struct ArenaIdentity {
  /// Kernel and namespaces: ranks with the same text can exchange descriptors and see each other's
  /// pids.
  std::string host;
  std::string host_name;
  std::int64_t pid = 0;
  std::uint32_t uid = 0;
  /// Random per process, so that a pid used again does not pass for this process.
  std::uint64_t process = 0;
  ArenaToken token{};
  /// Abstract name of the listening socket, without the leading 0 byte.
  std::string socket_name;
  std::int64_t control_bytes = 0;

  bool is_same_process(const ArenaIdentity& other) const {
    return pid == other.pid && process == other.process;
  }
};

/// Of this process, with a new token.
ArenaIdentity make_identity(std::string socket_name, std::int64_t control_bytes);

Bootstrap::Bytes encode_identity(const ArenaIdentity& identity);
/// Errors: kFabric.
Result<ArenaIdentity> decode_identity(std::span<const std::byte> bytes);

/// The same answer on every rank. Errors: kUnsupported naming ranks of other hosts or users than
/// rank 0's, kInvalidArgument for a control size that differs or is not positive.
Status check_identities(const std::vector<ArenaIdentity>& identities);

}  // namespace ep::fabric
