// SPDX-License-Identifier: Apache-2.0
// Ranks in messages.
#pragma once

#include <chrono>
#include <span>
#include <string>

namespace ep::fabric {

/// "1, 3, 4 and 27 more".
std::string list_ranks(std::span<const int> ranks);

/// "2.5 s".
std::string text_of(std::chrono::milliseconds duration);

}  // namespace ep::fabric
