// SPDX-License-Identifier: Apache-2.0
// Version of the library and of what it was built from.
#pragma once

#include <ep/api.h>

#include <string_view>

namespace ep {

/// "0.1.0".
EP_API std::string_view version();
/// Commit at build time, "-dirty" appended if the tree had changes, "unknown" without git.
EP_API std::string_view git_commit();

}  // namespace ep
