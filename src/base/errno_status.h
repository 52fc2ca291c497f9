// SPDX-License-Identifier: Apache-2.0
// Failures of system calls as Status.
#pragma once

#include <ep/status.h>

#include <source_location>
#include <string_view>

namespace ep::base {

/// kFabric "connect to 10.0.0.1:29500: Connection refused (errno 111)"; kOutOfMemory for ENOMEM.
Status errno_status(std::string_view what,
                    int error,
                    std::source_location where = std::source_location::current());

}  // namespace ep::base
