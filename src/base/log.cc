// SPDX-License-Identifier: Apache-2.0
// The log level and the writing of lines.
#include "base/log.h"

#include "base/env.h"

#include <array>
#include <atomic>
#include <string>
#include <unistd.h>

namespace ep {
namespace {

constexpr std::array<std::string_view, 5> kLevelNames = {"off", "error", "warn", "info", "debug"};

LogLevel level_of_environment() {
  const std::optional<std::string> text = base::env_text(base::EnvVar::kLog);
  if (!text) return LogLevel::kWarn;
  // An unknown level must not fail the process; the default says what went wrong, if anything.
  return parse_log_level(*text).value_or(LogLevel::kWarn);
}

std::atomic<LogLevel>& current_level() {
  static std::atomic<LogLevel> level(level_of_environment());
  return level;
}

void write_line(LogLevel level, const std::string& prefix, std::string_view message) {
  if (!base::is_logged(level)) return;
  std::string line = prefix;
  line.append(kLevelNames[static_cast<std::size_t>(level)]).append(": ").append(message);
  line.push_back('\n');
  // One write() per line: lines of several threads and processes do not mix. A short write loses
  // the rest of a line, which is better than blocking a rank on its log.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

std::optional<LogLevel> parse_log_level(std::string_view text) {
  for (std::size_t level = 0; level < kLevelNames.size(); ++level) {
    if (text == kLevelNames[level]) return static_cast<LogLevel>(level);
  }
  return std::nullopt;
}

// relaxed: the level orders nothing.
LogLevel log_level() { return current_level().load(std::memory_order_relaxed); }

void set_log_level(LogLevel level) { current_level().store(level, std::memory_order_relaxed); }

namespace base {

bool is_logged(LogLevel level) { return level != LogLevel::kOff && level <= log_level(); }

void log(LogLevel level, std::string_view message) { write_line(level, "ep ", message); }

void log(LogLevel level, int rank, std::string_view message) {
  write_line(level, "ep[" + std::to_string(rank) + "] ", message);
}

}  // namespace base
}  // namespace ep
