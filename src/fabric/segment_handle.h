// SPDX-License-Identifier: Apache-2.0
// What another process maps a segment by.
#pragma once

#include "base/unique_fd.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace ep::fabric {

/// CUmemFabricHandle: bytes that the driver understands on every host of an NVLink domain.
using FabricHandle = std::array<std::byte, 64>;

enum class HandleKind : std::uint8_t { kDescriptor, kFabric };

/// One of the two.
struct SegmentHandle {
  base::UniqueFd fd;
  std::optional<FabricHandle> fabric;
};

}  // namespace ep::fabric
