// SPDX-License-Identifier: Apache-2.0
// What a rank tells of itself before arenas connect.
#pragma once

#include "fabric/segment_handle.h"
#include "fabric/segment_registry.h"

#include <ep/bootstrap.h>
#include <ep/status.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ep::fabric {

using DeviceUuid = std::array<std::byte, 16>;

/// The device whose memory a rank contributes.
struct DeviceIdentity {
  static constexpr std::int32_t kHost = -1;
  /// Among those that the rank's process sees.
  std::int32_t ordinal = kHost;
  DeviceUuid uuid{};
  /// Devices that the process sees and whose memory this one cannot load, store and add to.
  std::vector<DeviceUuid> unreachable;
  /// Whether this process can share its memory, and map that of others, by FABRIC handles.
  bool has_fabric_handles = false;

  bool is_host() const { return ordinal == kHost; }
  bool can_reach(const DeviceIdentity& other) const;
};

/// "device 1 (GPU-5e2b5bd1-...)", the notation of nvidia-smi.
std::string name_of(const DeviceIdentity& device);

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
  /// Ranks share memory with those of their node.
  std::int32_t node = 0;
  DeviceIdentity device;

  bool is_same_process(const ArenaIdentity& other) const {
    return pid == other.pid && process == other.process;
  }
};

/// Of this process, with a new token.
ArenaIdentity make_identity(std::string socket_name,
                            std::int64_t control_bytes,
                            DeviceIdentity device = {},
                            int node = 0);

Bootstrap::Bytes encode_identity(const ArenaIdentity& identity);
/// Errors: kFabric.
Result<ArenaIdentity> decode_identity(std::span<const std::byte> bytes);

/// The same answer on every rank. Errors: kUnsupported naming ranks of other hosts or users than
/// the first of their node, on GPUs also those without FABRIC handles; or two ranks of a node whose
/// devices do not reach each other; kInvalidArgument for a control size that differs or is not
/// positive, or another kind of memory than rank 0's.
Status check_identities(const std::vector<ArenaIdentity>& identities);

/// The same answer on every rank: FABRIC handles where all ranks have them.
HandleKind choose_handles(const std::vector<ArenaIdentity>& identities);

}  // namespace ep::fabric
