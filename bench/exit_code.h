// SPDX-License-Identifier: Apache-2.0
// What the exit code of ep-bench says.
#pragma once

#include <ep/status.h>

namespace ep::bench {

/// A larger one is worse: a launcher of several ranks forwards the largest.
enum class ExitCode : int {
  kRight = 0,
  kWrongRow = 1,  ///< an output differs from what it must be
  kUsage = 2,     ///< the command line, a file, or an argument that the library refused
  kPeer = 3,      ///< a peer failed or a deadline passed
};

ExitCode exit_code_of(const Status& status);

inline ExitCode worst_of(ExitCode a, ExitCode b) { return a < b ? b : a; }

}  // namespace ep::bench
