// SPDX-License-Identifier: Apache-2.0
// Draws JSON lines of a sweep or of the model with tools/plot_bench.py.
#pragma once

#include <ep/status.h>

#include <string>

namespace ep::bench {

/// Before a long run: kUnsupported if python3 or its matplotlib is missing, as the script says.
Status check_plotting();

/// Errors: kInternal if the script fails.
Status plot_lines(const std::string& json_lines, const std::string& png_path);

}  // namespace ep::bench
