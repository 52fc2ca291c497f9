// SPDX-License-Identifier: Apache-2.0
// The network that roles of the host see: an engine and its window 0, segment 0 of the arena.
#pragma once

#include "base/check.h"
#include "fabric/net/net_engine.h"
#include "primitives/net.h"

#include <cstdint>

namespace ep::fabric {

/// A view: copied into each role. The engine offers both strengths on every network; the order is
/// part of the type, so that roles choose their rings by it.
template <ArrivalOrder kArrivalOrder>
class HostNet {
 public:
  static constexpr bool kOffersWeak = true;
  static constexpr bool kOffersStrong = true;
  static constexpr ArrivalOrder kOrder = kArrivalOrder;

  explicit HostNet(NetEngine& engine) : engine_(&engine) {
    EP_CHECK(engine.order() == kArrivalOrder, "a network of the other order");
  }

  int num_contexts() const { return engine_->num_contexts(); }
  bool try_put(int context, const primitives::NetPut& put) const {
    return engine_->try_put(context, {.peer = put.peer,
                                      .dst = {.window = kSegmentWindow, .offset = put.dst_offset},
                                      .src = {.window = kSegmentWindow, .offset = put.src_offset},
                                      .bytes = put.bytes,
                                      .signal = put.signal});
  }
  std::uint64_t signal_value(std::uint32_t slot) const { return engine_->signal_value(slot); }
  bool is_flushed(int context) const { return engine_->is_flushed(context); }
  bool is_lost(int peer) const { return engine_->peer_state(peer) == PeerState::kDead; }
  bool has_lost_peer() const { return engine_->has_failed(); }
  void progress(int context) const { engine_->progress(context); }

 private:
  static constexpr WindowId kSegmentWindow = 0;

  NetEngine* engine_;
};

static_assert(primitives::Net<HostNet<ArrivalOrder::kOrdered>>);
static_assert(primitives::Net<HostNet<ArrivalOrder::kUnordered>>);

}  // namespace ep::fabric
