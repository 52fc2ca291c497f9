// SPDX-License-Identifier: Apache-2.0
// The machine that the figures come from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ep::bench {

struct HostInfo {
  std::string cpu = "unknown";
  std::optional<double> clock_mhz;  ///< of the first processor now
  int num_cpus = 1;                 ///< that this process may run on
  std::int64_t cache_bytes = 0;     ///< the last-level cache
  std::int64_t memory_bytes = 0;
  std::string kernel = "unknown";
};

HostInfo read_host_info();

/// "491520K" as bytes; empty if it is no size. For the files of sysfs.
std::optional<std::int64_t> parse_size(std::string_view text);

}  // namespace ep::bench
