// SPDX-License-Identifier: Apache-2.0
// What ranks tell each other: their endpoints when they meet, later their windows.
#pragma once

#include <ep/status.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ep::fabric {

/// Of everything that ranks say to each other through this transport.
inline constexpr std::uint16_t kOfiProtocolVersion = 1;

/// A rank's endpoints. Everything but the addresses must be equal on all ranks.
struct EndpointDescription {
  std::string provider;
  std::uint32_t protocol = 0;  ///< of the provider, FI_PROTO_...
  std::uint32_t protocol_version = 0;
  std::uint32_t address_format = 0;
  bool is_ordered = false;
  std::vector<std::vector<std::byte>> addresses;  ///< one per context
};

/// Magic "EPOF" (32 bits), version (16), 0 (8); provider (text), protocol, protocol version,
/// address format (32 each), is_ordered (8), number of contexts (16); per context bytes of the
/// address (16) and the address.
std::vector<std::byte> encode(const EndpointDescription& description);
/// In its place, from a rank that could not open its endpoints: the same head with 1, code (8),
/// message (text).
std::vector<std::byte> encode_refusal(const Status& status);
/// Errors: kUnsupported for another version; kFabric for bytes that are no description; the status
/// of a refusal. All name the rank.
Result<EndpointDescription> decode_description(int rank, std::span<const std::byte> bytes);

/// Success where ranks with these can talk. Errors: kInvalidArgument naming rank and difference.
Status check_match(const EndpointDescription& own, int rank, const EndpointDescription& other);

/// Where a peer reaches a window of this rank.
struct WindowDescription {
  std::uint64_t base = 0;  ///< what the peer adds to an offset
  std::int64_t bytes = 0;
  std::vector<std::uint64_t> keys;  ///< one, or one per context
};

/// Magic "EPOW" (32 bits), base, bytes (64 each), number of keys (16), keys (64 each).
std::vector<std::byte> encode(const WindowDescription& description);
/// Errors: kFabric.
Result<WindowDescription> decode_window(std::span<const std::byte> bytes);

}  // namespace ep::fabric
