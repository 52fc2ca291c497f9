// SPDX-License-Identifier: Apache-2.0
// Closing of file descriptors.
#include "base/unique_fd.h"

#include "base/log.h"

#include <errno.h>
#include <string>
#include <unistd.h>

namespace ep::base {

void UniqueFd::reset(int fd) {
  const int old = std::exchange(fd_, fd);
  // EINTR: Linux has closed the descriptor all the same.
  if (old >= 0 && ::close(old) != 0 && errno != EINTR) {
    log(LogLevel::kError, "close(" + std::to_string(old) + "): errno " + std::to_string(errno));
  }
}

}  // namespace ep::base
