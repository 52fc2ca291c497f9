// SPDX-License-Identifier: Apache-2.0
// A segment as it is mapped into this process.
#include "fabric/mapping.h"

#include <algorithm>
#include <functional>

namespace ep::fabric {

bool Mapping::contains(const void* address, std::int64_t bytes) const {
  // Pointers of different objects compare through std::less only.
  const std::less_equal<const void*> is_not_after;
  if (bytes < 0 || bytes > bytes_ || !is_not_after(base_, address)) return false;
  // An empty range lies where its first byte would: the end of one mapping may be the start of
  // another.
  return is_not_after(address, base_ + (bytes_ - std::max<std::int64_t>(bytes, 1)));
}

}  // namespace ep::fabric
