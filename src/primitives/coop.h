// SPDX-License-Identifier: Apache-2.0
// A group of threads that runs a step together; passed into every primitive and never rebuilt
// inside.
#pragma once

#include "base/macros.h"

#include <concepts>
#include <cstdint>

namespace ep::primitives {

/// `broadcast` returns the value of thread 0 to all, `broadcast_last` that of the last thread,
/// `all` whether it is true in all; each synchronises like sync(). `inclusive_sum` adds the values
/// of the threads up to and with the calling one.
template <class G>
concept Coop = requires(G group, std::uint64_t value, std::int64_t addend, bool is_true) {
  { group.thread_rank() } -> std::same_as<int>;
  { group.size() } -> std::same_as<int>;
  group.sync();
  { group.broadcast(value) } -> std::same_as<std::uint64_t>;
  { group.broadcast_last(addend) } -> std::same_as<std::int64_t>;
  { group.all(is_true) } -> std::same_as<bool>;
  { group.inclusive_sum(addend) } -> std::same_as<std::int64_t>;
};

/// One thread: the group of the host executor.
struct SoloGroup {
  EP_HOST_DEVICE int thread_rank() const { return 0; }
  EP_HOST_DEVICE int size() const { return 1; }
  EP_HOST_DEVICE void sync() const {}
  EP_HOST_DEVICE std::uint64_t broadcast(std::uint64_t value) const { return value; }
  EP_HOST_DEVICE std::int64_t broadcast_last(std::int64_t value) const { return value; }
  EP_HOST_DEVICE bool all(bool is_true) const { return is_true; }
  EP_HOST_DEVICE std::int64_t inclusive_sum(std::int64_t value) const { return value; }
};
static_assert(Coop<SoloGroup>);

/// Calls step(i) for i in [0, count), shared out over the group.
template <Coop G, class Step>
EP_HOST_DEVICE void for_each_strided(G group, std::int64_t count, Step step) {
  EP_NO_UNROLL
  for (std::int64_t i = group.thread_rank(); i < count; i += group.size()) step(i);
}

}  // namespace ep::primitives
