// SPDX-License-Identifier: Apache-2.0
// The keys that say when, where and from which sources a JSON line was measured.
#pragma once

#include "bench/job.h"

#include <nlohmann/json.hpp>

namespace ep::bench {

/// date, device, driver, clocks, commit.
void add_machine(nlohmann::ordered_json& line, const Job& job);

}  // namespace ep::bench
