// SPDX-License-Identifier: Apache-2.0
// The end of the process after a broken invariant.
#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace ep::base {

void check_failed(const char* condition, std::source_location where, std::string_view message) {
  std::fprintf(stderr, "ep: %s:%u: %s: check failed: %s%s%.*s\n", where.file_name(),
               static_cast<unsigned>(where.line()), where.function_name(), condition,
               message.empty() ? "" : ": ", static_cast<int>(message.size()), message.data());
  std::abort();
}

}  // namespace ep::base
