// SPDX-License-Identifier: Apache-2.0
// Host, process and size of the ranks of an arena.
#include "fabric/arena_identity.h"

#include "base/byte_io.h"
#include "base/check.h"
#include "fabric/bootstrap/keyed_hash.h"
#include "fabric/bootstrap/rank_list.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <string_view>
#include <unistd.h>
#include <utility>

namespace ep::fabric {
namespace {

constexpr std::size_t kMaxTextBytes = 512;
/// Of one process; what comes from a peer is bounded before it is allocated.
constexpr std::uint32_t kMaxDevices = 1024;

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
std::vector<int> ranks_that_differ(const std::vector<ArenaIdentity>& identities, Field field) {
  std::vector<int> ranks;
  for (std::size_t rank = 1; rank < identities.size(); ++rank) {
    if (std::invoke(field, identities[rank]) != std::invoke(field, identities[0])) {
      ranks.push_back(static_cast<int>(rank));
    }
  }
  return ranks;
}

/// Why GPUs of several hosts make no arena.
std::string text_of_handles(const std::vector<ArenaIdentity>& identities) {
  std::vector<int> lacking;
  for (std::size_t rank = 0; rank < identities.size(); ++rank) {
    const DeviceIdentity& device = identities[rank].device;
    if (device.is_host()) return "";
    if (!device.has_fabric_handles) lacking.push_back(static_cast<int>(rank));
  }
  if (lacking.empty()) {
    return "; all GPUs have FABRIC handles, but the messages of an arena do not cross hosts so far";
  }
  return "; without FABRIC handles, by which GPUs reach memory of other hosts: rank " +
         list_ranks(lacking);
}

/// Ranks of the node of `first` whose `field` differs from that one's.
template <class Field>
std::vector<int> ranks_that_differ_on_node(const std::vector<ArenaIdentity>& identities,
                                           std::size_t first,
                                           Field field) {
  std::vector<int> ranks;
  for (std::size_t rank = first + 1; rank < identities.size(); ++rank) {
    const bool is_same_node = identities[rank].node == identities[first].node;
    if (is_same_node &&
        std::invoke(field, identities[rank]) != std::invoke(field, identities[first]))
      ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

Status check_host_of_node(const std::vector<ArenaIdentity>& identities, std::size_t first_rank) {
  const ArenaIdentity& first = identities[first_rank];
  const std::string first_text = "rank " + std::to_string(first_rank);
  if (const auto ranks = ranks_that_differ_on_node(identities, first_rank, &ArenaIdentity::host);
      !ranks.empty()) {
    const ArenaIdentity& other = identities[static_cast<std::size_t>(ranks[0])];
    return Status(Errc::kUnsupported, "arena: on another host (or in other namespaces) than " +
                                          first_text + ": rank " + list_ranks(ranks) + "; " +
                                          first_text + " on " + first.host_name + ", rank " +
                                          std::to_string(ranks[0]) + " on " + other.host_name +
                                          text_of_handles(identities));
  }
  const auto ranks = ranks_that_differ_on_node(identities, first_rank, &ArenaIdentity::uid);
  if (ranks.empty()) return Status();
  return Status(Errc::kUnsupported, "arena: of another user than " + first_text + " (uid " +
                                        std::to_string(first.uid) + "): rank " + list_ranks(ranks));
}

Status check_hosts(const std::vector<ArenaIdentity>& identities) {
  for (std::size_t rank = 0; rank < identities.size(); ++rank) {
    if (rank == 0 || identities[rank].node != identities[rank - 1].node)
      EP_TRY(check_host_of_node(identities, rank));
  }
  return Status();
}

Status check_control_bytes(const std::vector<ArenaIdentity>& identities) {
  const ArenaIdentity& first = identities[0];
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

Status check_memory_kinds(const std::vector<ArenaIdentity>& identities) {
  const auto ranks = ranks_that_differ(
      identities, [](const ArenaIdentity& identity) { return identity.device.is_host(); });
  if (ranks.empty()) return Status();
  const bool is_host_first = identities[0].device.is_host();
  return Status(Errc::kInvalidArgument, std::string("arena: memory of ") +
                                            (is_host_first ? "a GPU" : "the host") + " on rank " +
                                            list_ranks(ranks) + ", of " +
                                            (is_host_first ? "the host" : "a GPU") + " on rank 0");
}

Status check_reach(const std::vector<ArenaIdentity>& identities) {
  for (std::size_t rank = 0; rank < identities.size(); ++rank) {
    for (std::size_t peer = 0; peer < rank; ++peer) {
      const DeviceIdentity& mine = identities[rank].device;
      const DeviceIdentity& theirs = identities[peer].device;
      if (identities[rank].node != identities[peer].node) continue;
      if (mine.can_reach(theirs) && theirs.can_reach(mine)) continue;
      return Status(Errc::kUnsupported, "arena: no P2P with atomics between rank " +
                                            std::to_string(peer) + " on " + name_of(theirs) +
                                            " and rank " + std::to_string(rank) + " on " +
                                            name_of(mine));
    }
  }
  return Status();
}

void encode_device(const DeviceIdentity& device, base::ByteWriter& writer) {
  writer.put(device.ordinal).put_bytes(device.uuid);
  writer.put(static_cast<std::uint8_t>(device.has_fabric_handles ? 1 : 0));
  writer.put(static_cast<std::uint32_t>(device.unreachable.size()));
  for (const DeviceUuid& uuid : device.unreachable) writer.put_bytes(uuid);
}

DeviceUuid read_uuid(base::ByteReader& reader) {
  DeviceUuid uuid{};
  const std::span<const std::byte> bytes = reader.get_bytes(uuid.size());
  std::copy(bytes.begin(), bytes.end(), uuid.begin());
  return uuid;
}

/// Damage shows in the reader, or as a number that no process has.
bool decode_device(base::ByteReader& reader, DeviceIdentity& device) {
  device.ordinal = reader.get<std::int32_t>();
  device.uuid = read_uuid(reader);
  device.has_fabric_handles = reader.get<std::uint8_t>() != 0;
  const auto num_unreachable = reader.get<std::uint32_t>();
  if (device.ordinal < DeviceIdentity::kHost || num_unreachable > kMaxDevices) return false;
  for (std::uint32_t i = 0; i < num_unreachable; ++i) {
    device.unreachable.push_back(read_uuid(reader));
  }
  return true;
}

}  // namespace

bool DeviceIdentity::can_reach(const DeviceIdentity& other) const {
  return std::find(unreachable.begin(), unreachable.end(), other.uuid) == unreachable.end();
}

std::string name_of(const DeviceIdentity& device) {
  if (device.is_host()) return "the host";
  constexpr std::string_view kDigits = "0123456789abcdef";
  // 8-4-4-4-12 digits.
  constexpr std::array<std::size_t, 4> kHyphensBefore{4, 6, 8, 10};
  std::string text = "device " + std::to_string(device.ordinal) + " (GPU-";
  for (std::size_t i = 0; i < device.uuid.size(); ++i) {
    if (std::find(kHyphensBefore.begin(), kHyphensBefore.end(), i) != kHyphensBefore.end()) {
      text += '-';
    }
    const auto value = std::to_integer<unsigned>(device.uuid[i]);
    text += kDigits[value >> 4];
    text += kDigits[value & 0xf];
  }
  return text + ")";
}

ArenaIdentity make_identity(std::string socket_name,
                            std::int64_t control_bytes,
                            DeviceIdentity device,
                            int node) {
  ArenaIdentity identity;
  identity.host = host_identity();
  identity.host_name = local_host_name();
  identity.pid = ::getpid();
  identity.uid = ::geteuid();
  identity.process = process_nonce();
  fill_random(identity.token);
  identity.socket_name = std::move(socket_name);
  identity.control_bytes = control_bytes;
  identity.node = node;
  identity.device = std::move(device);
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
      .put(identity.control_bytes)
      .put(identity.node);
  encode_device(identity.device, writer);
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
  identity.node = reader.get<std::int32_t>();
  const bool is_valid = decode_device(reader, identity.device);
  if (!is_valid || !reader.is_complete()) return Status(Errc::kFabric, "arena: malformed identity");
  std::copy(token.begin(), token.end(), identity.token.begin());
  return identity;
}

Status check_identities(const std::vector<ArenaIdentity>& identities) {
  EP_TRY(check_hosts(identities));
  EP_TRY(check_control_bytes(identities));
  EP_TRY(check_memory_kinds(identities));
  return check_reach(identities);
}

HandleKind choose_handles(const std::vector<ArenaIdentity>& identities) {
  const bool have_all =
      std::all_of(identities.begin(), identities.end(),
                  [](const ArenaIdentity& identity) { return identity.device.has_fabric_handles; });
  return have_all ? HandleKind::kFabric : HandleKind::kDescriptor;
}

}  // namespace ep::fabric
