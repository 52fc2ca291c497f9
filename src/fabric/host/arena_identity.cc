// SPDX-License-Identifier: Apache-2.0
// Host, process and size of the ranks of an arena.
#include "fabric/host/arena_identity.h"

#include "base/byte_io.h"
#include "fabric/bootstrap/keyed_hash.h"
#include "fabric/bootstrap/rank_list.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <unistd.h>
#include <utility>

namespace ep::fabric {
namespace {

constexpr std::size_t kMaxTextBytes = 512;

std::string link_target(const char* path) {
  std::array<char, 64> target{};
  const ssize_t size = ::readlink(path, target.data(), target.size());
  return size > 0 ? std::string(target.data(), static_cast<std::size_t>(size)) : "";
}

std::string local_host_name() {
  std::array<char, 256> name{};
  // The last byte stays 0 where a longer name is cut.
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

/// Abstract sockets belong to a network namespace, peer credentials to a pid namespace.
std::string host_identity() {
  std::string boot_id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  if (boot_id.empty()) boot_id = local_host_name();
  return boot_id + " " + link_target("/proc/self/ns/net") + " " + link_target("/proc/self/ns/pid");
}

std::uint64_t random_number() {
  std::uint64_t number = 0;
  fill_random(std::as_writable_bytes(std::span(&number, 1)));
  return number;
}

std::uint64_t process_nonce() {
  static const std::uint64_t kNonce = random_number();
  return kNonce;
}

/// Ranks whose `field` differs from rank 0's.
template <class Field>
std::vector<int> ranks_that_differ(const std::vector<ArenaIdentity>& identities,
                                   Field ArenaIdentity::*field) {
  std::vector<int> ranks;
  for (std::size_t rank = 1; rank < identities.size(); ++rank) {
    if (identities[rank].*field != identities[0].*field) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

}  // namespace

ArenaIdentity make_identity(std::string socket_name, std::int64_t control_bytes) {
  ArenaIdentity identity;
  identity.host = host_identity();
  identity.host_name = local_host_name();
  identity.pid = ::getpid();
  identity.uid = ::geteuid();
  identity.process = process_nonce();
  fill_random(identity.token);
  identity.socket_name = std::move(socket_name);
  identity.control_bytes = control_bytes;
  return identity;
}

Bootstrap::Bytes encode_identity(const ArenaIdentity& identity) {
  base::ByteWriter writer;
  writer.put_text(identity.host)
      .put_text(identity.host_name)
      .put(identity.pid)
      .put(identity.uid)
      .put(identity.process)
      .put_bytes(identity.token)
      .put_text(identity.socket_name)
      .put(identity.control_bytes);
  return writer.take();
}

Result<ArenaIdentity> decode_identity(std::span<const std::byte> bytes) {
  base::ByteReader reader(bytes);
  ArenaIdentity identity;
  identity.host = reader.get_text(kMaxTextBytes);
  identity.host_name = reader.get_text(kMaxTextBytes);
  identity.pid = reader.get<std::int64_t>();
  identity.uid = reader.get<std::uint32_t>();
  identity.process = reader.get<std::uint64_t>();
  const std::span<const std::byte> token = reader.get_bytes(identity.token.size());
  identity.socket_name = reader.get_text(kMaxTextBytes);
  identity.control_bytes = reader.get<std::int64_t>();
  if (!reader.is_complete()) return Status(Errc::kFabric, "arena: malformed identity");
  std::copy(token.begin(), token.end(), identity.token.begin());
  return identity;
}

Status check_identities(const std::vector<ArenaIdentity>& identities) {
  const ArenaIdentity& first = identities[0];
  if (const auto ranks = ranks_that_differ(identities, &ArenaIdentity::host); !ranks.empty()) {
    const ArenaIdentity& other = identities[static_cast<std::size_t>(ranks[0])];
    return Status(Errc::kUnsupported,
                  "arena: on another host (or in other namespaces) than rank 0: rank " +
                      list_ranks(ranks) + "; rank 0 on " + first.host_name + ", rank " +
                      std::to_string(ranks[0]) + " on " + other.host_name);
  }
  if (const auto ranks = ranks_that_differ(identities, &ArenaIdentity::uid); !ranks.empty()) {
    return Status(Errc::kUnsupported, "arena: of another user than rank 0 (uid " +
                                          std::to_string(first.uid) + "): rank " +
                                          list_ranks(ranks));
  }
  const auto ranks = ranks_that_differ(identities, &ArenaIdentity::control_bytes);
  if (!ranks.empty()) {
    const ArenaIdentity& other = identities[static_cast<std::size_t>(ranks[0])];
    return Status(Errc::kInvalidArgument,
                  "arena: control_bytes = " + std::to_string(other.control_bytes) + " on rank " +
                      list_ranks(ranks) + ", " + std::to_string(first.control_bytes) +
                      " on rank 0");
  }
  if (first.control_bytes > 0) return Status();
  return Status(
      Errc::kInvalidArgument,
      "arena: control_bytes = " + std::to_string(first.control_bytes) + ", expected above 0");
}

}  // namespace ep::fabric
