// SPDX-License-Identifier: Apache-2.0
// Version and commit of this build.
#include "ep_build_info.h"

#include <ep/version.h>

namespace ep {

std::string_view version() { return base::kVersion; }

std::string_view git_commit() { return base::kGitCommit; }

}  // namespace ep
