// SPDX-License-Identifier: Apache-2.0
// Places of messages, and patience.
#include "bench/wire.h"

#include <algorithm>
#include <thread>

namespace ep::bench {

int Stream::num_places() const {
  const std::int64_t fitting =
      std::max<std::int64_t>(kSpanBytes / std::max(stride(), kAlignment), 1);
  return static_cast<int>(std::min<std::int64_t>(fitting, num));
}

Message Stream::message(int index) const {
  return {.offset = index % num_places() * stride(),
          .bytes = bytes,
          .is_announced = announces_each || index == num - 1,
          .speaks_for_all = !announces_each};
}

std::int64_t wire_bytes(std::int64_t max_message_bytes) {
  return std::max(max_message_bytes, Stream::kSpanBytes) + Stream::kAlignment;
}

Status Idler::idle() {
  constexpr int kCallsPerLook = 1024;
  constexpr int kLooksBeforeYield = 8;
  if (++num_calls_ % kCallsPerLook == 0 && deadline_.expired()) {
    return Status(Errc::kPeerTimeout, "net: the other rank does not answer");
  }
  // Data that is under way shows as nothing to some wires. But on few cores whoever spins keeps the
  // other rank from answering.
  if (++num_in_a_row_ > kLooksBeforeYield) std::this_thread::yield();
  return Status();
}

}  // namespace ep::bench
