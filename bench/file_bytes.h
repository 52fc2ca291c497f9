// SPDX-License-Identifier: Apache-2.0
// Whole files as strings, with errors that name the file and the reason.
#pragma once

#include <ep/status.h>

#include <string>
#include <string_view>

namespace ep::bench {

/// Errors: kInvalidArgument with path and reason.
Result<std::string> read_file(const std::string& path);
Status write_file(const std::string& path, std::string_view content);

}  // namespace ep::bench
