// SPDX-License-Identifier: Apache-2.0
// Maps the library's errors to exit codes.
#include "bench/exit_code.h"

namespace ep::bench {

ExitCode exit_code_of(const Status& status) {
  switch (status.code()) {
    case Errc::kOk:
      return ExitCode::kRight;
    case Errc::kInvalidArgument:
    case Errc::kUnsupported:
      return ExitCode::kUsage;
    default:
      return ExitCode::kPeer;
  }
}

}  // namespace ep::bench
