// SPDX-License-Identifier: Apache-2.0
// Encodes and decodes what ranks tell each other; nothing that arrives is believed.
#include "fabric/ofi/description.h"

#include "base/byte_io.h"
#include "base/check.h"
#include "fabric/ofi/ofi.h"

#include <limits>

namespace ep::fabric {
namespace {

constexpr std::uint32_t kEndpointMagic = 0x464f5045;  // "EPOF"
constexpr std::uint32_t kWindowMagic = 0x574f5045;    // "EPOW"
constexpr std::size_t kMaxProviderBytes = 64;
constexpr std::size_t kMaxAddressBytes = 256;
constexpr std::size_t kMaxMessageBytes = 4096;

enum class Kind : std::uint8_t { kEndpoints = 0, kRefusal = 1 };

base::ByteWriter head_of(Kind kind) {
  base::ByteWriter writer;
  writer.put(kEndpointMagic).put(kOfiProtocolVersion).put(static_cast<std::uint8_t>(kind));
  return writer;
}

Status malformed(int rank, std::size_t num_bytes) {
  return Status(Errc::kFabric, "ofi: what rank " + std::to_string(rank) +
                                   " sent is no description of endpoints (" +
                                   std::to_string(num_bytes) + " bytes)")
      .set_peer(rank);
}

Status refusal(int rank, base::ByteReader& reader, std::size_t num_bytes) {
  const auto code = reader.get<std::uint8_t>();
  std::string message = reader.get_text(kMaxMessageBytes);
  const bool is_error = code > static_cast<std::uint8_t>(Errc::kOk) &&
                        code <= static_cast<std::uint8_t>(Errc::kInternal);
  if (!reader.is_complete() || !is_error) return malformed(rank, num_bytes);
  return Status(static_cast<Errc>(code), "rank " + std::to_string(rank) + ": " + message)
      .set_peer(rank);
}

void read_addresses(base::ByteReader& reader, EndpointDescription& description) {
  const auto num_contexts = reader.get<std::uint16_t>();
  for (int context = 0; context < num_contexts && !reader.has_failed(); ++context) {
    const auto address = reader.get_bytes(reader.get<std::uint16_t>());
    description.addresses.emplace_back(address.begin(), address.end());
  }
}

bool is_sane(const EndpointDescription& description) {
  if (description.addresses.empty() || description.addresses.size() > kMaxOfiContexts) return false;
  for (const auto& address : description.addresses) {
    if (address.empty() || address.size() > kMaxAddressBytes) return false;
  }
  return true;
}

std::string text_of(const EndpointDescription& description) {
  return description.provider + ", protocol " + std::to_string(description.protocol) + "." +
         std::to_string(description.protocol_version) + ", address format " +
         std::to_string(description.address_format) + ", " +
         std::to_string(description.addresses.size()) + " context(s) of " +
         std::to_string(description.addresses.front().size()) + " bytes, " +
         (description.is_ordered ? "ordered" : "unordered");
}

}  // namespace

std::vector<std::byte> encode(const EndpointDescription& description) {
  base::ByteWriter writer = head_of(Kind::kEndpoints);
  writer.put_text(description.provider)
      .put(description.protocol)
      .put(description.protocol_version)
      .put(description.address_format)
      .put(static_cast<std::uint8_t>(description.is_ordered ? 1 : 0))
      .put(static_cast<std::uint16_t>(description.addresses.size()));
  for (const auto& address : description.addresses) {
    writer.put(static_cast<std::uint16_t>(address.size())).put_bytes(address);
  }
  return writer.take();
}

std::vector<std::byte> encode_refusal(const Status& status) {
  base::ByteWriter writer = head_of(Kind::kRefusal);
  writer.put(static_cast<std::uint8_t>(status.code()))
      .put_text(std::string_view(status.message()).substr(0, kMaxMessageBytes));
  return writer.take();
}

Result<EndpointDescription> decode_description(int rank, std::span<const std::byte> bytes) {
  base::ByteReader reader(bytes);
  const auto magic = reader.get<std::uint32_t>();
  const auto version = reader.get<std::uint16_t>();
  if (reader.has_failed() || magic != kEndpointMagic) return malformed(rank, bytes.size());
  if (version != kOfiProtocolVersion) {
    return Status(Errc::kUnsupported, "ofi: rank " + std::to_string(rank) + " speaks version " +
                                          std::to_string(version) +
                                          " of the protocol, this rank version " +
                                          std::to_string(kOfiProtocolVersion))
        .set_peer(rank);
  }
  const auto kind = static_cast<Kind>(reader.get<std::uint8_t>());
  if (kind == Kind::kRefusal) return refusal(rank, reader, bytes.size());
  EndpointDescription description;
  description.provider = reader.get_text(kMaxProviderBytes);
  description.protocol = reader.get<std::uint32_t>();
  description.protocol_version = reader.get<std::uint32_t>();
  description.address_format = reader.get<std::uint32_t>();
  description.is_ordered = reader.get<std::uint8_t>() != 0;
  read_addresses(reader, description);
  const bool is_valid = kind == Kind::kEndpoints && reader.is_complete() && is_sane(description);
  if (!is_valid) return malformed(rank, bytes.size());
  return description;
}

Status check_match(const EndpointDescription& own, int rank, const EndpointDescription& other) {
  bool is_equal = own.provider == other.provider && own.protocol == other.protocol &&
                  own.protocol_version == other.protocol_version &&
                  own.address_format == other.address_format &&
                  own.is_ordered == other.is_ordered &&
                  own.addresses.size() == other.addresses.size();
  for (const auto& address : other.addresses) {
    is_equal = is_equal && address.size() == own.addresses.front().size();
  }
  if (is_equal) return Status();
  return Status(Errc::kInvalidArgument, "ofi: rank " + std::to_string(rank) + " has " +
                                            text_of(other) + "; this rank has " + text_of(own))
      .set_peer(rank);
}

std::vector<std::byte> encode(const WindowDescription& description) {
  base::ByteWriter writer;
  writer.put(kWindowMagic).put(description.base).put(description.bytes);
  writer.put(static_cast<std::uint16_t>(description.keys.size()));
  for (std::uint64_t key : description.keys) writer.put(key);
  return writer.take();
}

Result<WindowDescription> decode_window(std::span<const std::byte> bytes) {
  base::ByteReader reader(bytes);
  const auto magic = reader.get<std::uint32_t>();
  WindowDescription window;
  window.base = reader.get<std::uint64_t>();
  window.bytes = reader.get<std::int64_t>();
  const auto num_keys = reader.get<std::uint16_t>();
  for (int i = 0; i < num_keys && !reader.has_failed(); ++i) {
    window.keys.push_back(reader.get<std::uint64_t>());
  }
  const bool is_valid = reader.is_complete() && magic == kWindowMagic && window.bytes >= 0 &&
                        !window.keys.empty() &&
                        window.base <= std::numeric_limits<std::uint64_t>::max() -
                                           static_cast<std::uint64_t>(window.bytes);
  if (is_valid) return window;
  return Status(Errc::kFabric,
                "ofi: " + std::to_string(bytes.size()) + " bytes are no description of a window");
}

}  // namespace ep::fabric
