// SPDX-License-Identifier: Apache-2.0
// Lines to stderr, each written at once so that those of several ranks do not mix.
#pragma once

#include <ep/log.h>

#include <string_view>

namespace ep::base {

bool is_logged(LogLevel level);

/// "ep warn: message".
void log(LogLevel level, std::string_view message);
/// "ep[3] warn: message".
void log(LogLevel level, int rank, std::string_view message);

}  // namespace ep::base
