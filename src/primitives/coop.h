// SPDX-License-Identifier: Apache-2.0
// A group of threads that runs a step together; passed into every primitive and never rebuilt
// inside.
#pragma once

#include "base/macros.h"

#include <concepts>
#include <cstdint>

namespace ep::primitives {

/// `broadcast` returns the value of thread 0 to all and synchronises like sync().
template <class G>
concept Coop = requires(G group, std::uint64_t value) {
  { group.thread_rank() } -> std::same_as<int>;
  { group.size() } -> std::same_as<int>;
  group.sync();
  { group.broadcast(value) } -> std::same_as<std::uint64_t>;
};

/// One thread: the group of the host executor.
struct SoloGroup {
  EP_HOST_DEVICE int thread_rank() const { return 0; }
  EP_HOST_DEVICE int size() const { return 1; }
  EP_HOST_DEVICE void sync() const {}
  EP_HOST_DEVICE std::uint64_t broadcast(std::uint64_t value) const { return value; }
};
static_assert(Coop<SoloGroup>);

/// Calls step(i) for i in [0, count), shared out over the group.
template <Coop G, class Step>
EP_HOST_DEVICE void for_each_strided(G group, std::int64_t count, Step step) {
  for (std::int64_t i = group.thread_rank(); i < count; i += group.size()) step(i);
}

}  // namespace ep::primitives
