// SPDX-License-Identifier: Apache-2.0
// HMAC-SHA-256 and random numbers, for proving knowledge of EP_COOKIE without sending it.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace ep::fabric {

inline constexpr std::size_t kDigestBytes = 32;
using Digest = std::array<std::byte, kDigestBytes>;

/// FIPS 180-4.
Digest sha256(std::span<const std::byte> message);

/// RFC 2104; a key of any length.
Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message);

/// In a time that does not depend on where they differ.
bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b);

/// From the operating system's generator.
void fill_random(std::span<std::byte> bytes);

}  // namespace ep::fabric
