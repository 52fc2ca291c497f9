// SPDX-License-Identifier: Apache-2.0
// From a command line to an exit code.
#pragma once

#include "bench/exit_code.h"
#include "bench/options.h"

namespace ep::bench {

/// Runs the command, prints report and errors.
ExitCode run(const Options& options);

}  // namespace ep::bench
