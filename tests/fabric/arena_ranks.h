// SPDX-License-Identifier: Apache-2.0
// What tests of arenas share.
#pragma once

#include "base/deadline.h"
#include "fabric/host/arena.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ep::test {

inline constexpr std::chrono::milliseconds kArenaPatience{20'000};
inline base::Deadline patient() { return base::Deadline::after(kArenaPatience); }

/// A number that tells whose segment it is.
inline std::uint64_t stamp_of(int rank, int segment) {
  return 0x5eed'0000'0000'0000u + static_cast<std::uint64_t>(rank) * 1000 +
         static_cast<std::uint64_t>(segment);
}

inline void write_stamp(std::byte* at, std::uint64_t stamp) {
  std::memcpy(at, &stamp, sizeof(stamp));
}
inline std::uint64_t read_stamp(const std::byte* at) {
  std::uint64_t stamp = 0;
  std::memcpy(&stamp, at, sizeof(stamp));
  return stamp;
}

/// Waits until a peer's flag is set; false after `limit`.
inline bool await_gone(const fabric::HostArena& arena, int peer, std::chrono::milliseconds limit) {
  const base::Deadline deadline = base::Deadline::after(limit);
  while (!deadline.expired()) {
    if (arena.gone_flags()[peer].load(std::memory_order_relaxed) != 0) return true;
  }
  return false;
}

}  // namespace ep::test
