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
#include <dirent.h>
#include <fstream>
#include <string>

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

/// Entries of a folder of /proc, such as /proc/self/fd.
inline int count_entries(const char* folder) {
  int count = 0;
  DIR* const entries = ::opendir(folder);
  while (entries != nullptr && ::readdir(entries) != nullptr) ++count;
  if (entries != nullptr) ::closedir(entries);
  return count;
}

/// Mappings of this process.
inline int count_mappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) ++count;
  return count;
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
