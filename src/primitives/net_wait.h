// SPDX-License-Identifier: Apache-2.0
// Puts and waits of a lane: they drive the network, and end by the deadline like every other wait.
#pragma once

#include "primitives/net.h"
#include "primitives/wait.h"

#include <cstdint>

namespace ep::primitives {

/// What a lane says to the network: its ordering domains, and the operation that it works for.
/// What peers wait for has domains apart from what only gives places back: a lane that waits for
/// the one to be away must not wait for the other, which a peer takes when it comes by.
template <Executor Exec, Net N>
struct NetLane {
  const OpContext<Exec>* op;
  N* net;
  int context;       ///< of puts
  int tell_context;  ///< of signals alone

  NetLane(const OpContext<Exec>& host, N& network, int channel) : op(&host), net(&network) {
    const int num_contexts = network.num_contexts();
    const int num_of_puts = num_contexts > 1 ? num_contexts / 2 : 1;
    context = channel % num_of_puts;
    tell_context = num_contexts > 1 ? num_of_puts + channel % num_of_puts : 0;
  }
};

/// Everything that the group stored before may be read by the network. False if the group gave up.
template <Executor Exec, Net N, Coop G>
[[nodiscard]] bool net_put(G group, const NetLane<Exec, N>& lane, const NetPut& put) {
  group.sync();
  return wait_until(group, *lane.op, {WaitSite::kNetRoom, put.peer, 1}, [&] {
    if (lane.net->try_put(lane.context, put)) return std::uint64_t{1};
    lane.net->progress(lane.context);
    return std::uint64_t{0};
  });
}

/// Waits until a signal of this rank has grown to `least`: what it speaks of may be read. False if
/// the group gave up.
template <Executor Exec, Net N, Coop G>
[[nodiscard]] bool net_wait(G group,
                            const NetLane<Exec, N>& lane,
                            const WaitFor& wait,
                            std::uint32_t signal) {
  return wait_until(group, *lane.op, wait, [&] {
    std::uint64_t value = lane.net->signal_value(signal);
    if (value < wait.expected) {
      lane.net->progress(lane.context);
      if (lane.tell_context != lane.context) lane.net->progress(lane.tell_context);
      value = lane.net->signal_value(signal);
    }
    return value < wait.expected ? value : wait.expected;
  });
}

/// As net_put of a signal alone, which a peer that left does not need.
template <Executor Exec, Net N, Coop G>
[[nodiscard]] bool net_tell(G group,
                            const NetLane<Exec, N>& lane,
                            int peer,
                            const NetSignal& signal) {
  const NetPut put{.peer = peer, .signal = signal};
  group.sync();
  return wait_until(group, *lane.op, {WaitSite::kNetRoom, peer, 1}, [&] {
    if (lane.net->try_put(lane.tell_context, put) || lane.net->is_lost(peer))
      return std::uint64_t{1};
    lane.net->progress(lane.tell_context);
    return std::uint64_t{0};
  });
}

/// Waits until the sources of all puts of the lane's context may be reused, as far as peers are
/// there: the puts are on their way, whether or not this rank makes progress. False if the group
/// gave up.
template <Executor Exec, Net N, Coop G>
[[nodiscard]] bool net_flush(G group, const NetLane<Exec, N>& lane) {
  return wait_until(group, *lane.op, {WaitSite::kNetRoom, lane.op->rank(), 1}, [&] {
    if (lane.net->is_flushed(lane.context) || lane.net->has_lost_peer()) return std::uint64_t{1};
    lane.net->progress(lane.context);
    return std::uint64_t{0};
  });
}

}  // namespace ep::primitives
