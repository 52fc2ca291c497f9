// SPDX-License-Identifier: Apache-2.0
// Text and code of a failed system call.
#include "base/errno_status.h"

#include "base/log.h"

#include <errno.h>
#include <string>
#include <system_error>

namespace ep::base {

Status errno_status(std::string_view what, int error, std::source_location where) {
  std::string message(what);
  message.append(": ").append(std::generic_category().message(error));
  message.append(" (errno ").append(std::to_string(error)).append(")");
  if (is_logged(LogLevel::kDebug)) {
    log(LogLevel::kDebug, std::string(where.function_name()) + ": " + message);
  }
  const Errc code = error == ENOMEM ? Errc::kOutOfMemory : Errc::kFabric;
  return Status(code, std::move(message), error);
}

}  // namespace ep::base
