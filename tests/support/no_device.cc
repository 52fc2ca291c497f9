// SPDX-License-Identifier: Apache-2.0
// A build without CUDA has no GPU.
#include "base/check.h"
#include "tests/support/device.h"

namespace ep::test {

int Device::count() { return 0; }

bool Device::is_any_open() { return false; }

std::unique_ptr<Device> Device::open(int /*index*/) {
  EP_CHECK(false, "a build without CUDA opens no device");
  return nullptr;
}

}  // namespace ep::test
