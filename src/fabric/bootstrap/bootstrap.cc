// SPDX-License-Identifier: Apache-2.0
// What every Bootstrap has in common.
#include <ep/bootstrap.h>

namespace ep {

Status Bootstrap::barrier(std::chrono::milliseconds timeout) {
  return all_gather({}, timeout).status();
}

}  // namespace ep
