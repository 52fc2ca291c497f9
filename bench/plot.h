// SPDX-License-Identifier: Apache-2.0
// Draws the lines of a sweep with tools/plot_sweep.py.
#pragma once

#include <ep/status.h>

#include <string>

namespace ep::bench {

/// Before a long run: kUnsupported if python3 or its matplotlib is missing, as the script says.
Status check_plotting();

/// Errors: kInternal if the script fails.
Status plot_sweep(const std::string& json_lines, const std::string& png_path);

}  // namespace ep::bench
