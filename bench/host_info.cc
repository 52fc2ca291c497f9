// SPDX-License-Identifier: Apache-2.0
// Reads /proc and /sys.
#include "bench/host_info.h"

#include <charconv>
#include <fstream>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

namespace ep::bench {
namespace {

/// Where neither sysfs nor the processor says it.
constexpr std::int64_t kDefaultCacheBytes = std::int64_t{32} << 20;

/// The value behind "name   : " in /proc/cpuinfo; empty if there is none.
std::string cpuinfo_value(std::string_view name) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (!line.starts_with(name) || colon == std::string::npos) continue;
    const std::size_t value = line.find_first_not_of(' ', colon + 1);
    return value == std::string::npos ? std::string() : line.substr(value);
  }
  return {};
}

std::optional<double> clock_mhz() {
  const std::string text = cpuinfo_value("cpu MHz");
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

std::int64_t last_level_cache_bytes() {
  for (const char* index : {"index3", "index2"}) {
    std::ifstream file(std::string("/sys/devices/system/cpu/cpu0/cache/") + index + "/size");
    std::string text;
    if (!std::getline(file, text)) continue;
    if (const auto size = parse_size(text)) return *size;
  }
  return kDefaultCacheBytes;
}

int num_allowed_cpus() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return 1;
  return CPU_COUNT(&allowed);
}

}  // namespace

std::optional<std::int64_t> parse_size(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return std::nullopt;
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  if (unit.empty()) return value;
  if (unit == "K") return value << 10;
  if (unit == "M") return value << 20;
  if (unit == "G") return value << 30;
  return std::nullopt;
}

HostInfo read_host_info() {
  HostInfo info;
  if (const std::string cpu = cpuinfo_value("model name"); !cpu.empty()) info.cpu = cpu;
  info.clock_mhz = clock_mhz();
  info.num_cpus = num_allowed_cpus();
  info.cache_bytes = last_level_cache_bytes();
  info.memory_bytes = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  utsname name{};
  if (uname(&name) == 0) info.kernel = std::string(name.sysname) + " " + name.release;
  return info;
}

}  // namespace ep::bench
