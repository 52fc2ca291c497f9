// SPDX-License-Identifier: Apache-2.0
// What the library prints to stderr: nothing below the level of EP_LOG (off, error, warn, info,
// debug; default warn).
#pragma once

#include <ep/api.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace ep {

enum class LogLevel : std::uint8_t { kOff, kError, kWarn, kInfo, kDebug };

/// "info" and so on; empty if unknown.
EP_API std::optional<LogLevel> parse_log_level(std::string_view text);
/// EP_LOG, or what set_log_level() chose. Any thread.
EP_API LogLevel log_level();
EP_API void set_log_level(LogLevel level);

}  // namespace ep
