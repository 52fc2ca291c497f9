// SPDX-License-Identifier: Apache-2.0
// What every lane of a rank knows that talks to other nodes; how the last of them leaves.
#pragma once

#include "internode/rail_params.h"
#include "primitives/net_wait.h"
#include "primitives/stage.h"

#include <cstdint>

namespace ep::internode {

/// The rank's own operation, its rails, and the network of the lane. Waits for other nodes run in
/// the name of this rank, also those of a delegate's lanes.
template <primitives::Executor Exec, primitives::Net N>
struct HostSide {
  primitives::OpContext<Exec> op;
  const RailParams* rail;
  primitives::NetLane<Exec, N> net;

  /// Of a lane of the rank's own operation.
  HostSide(const primitives::OpParams& params, const RailParams& rails, N& network, int channel)
      : op(params), rail(&rails), net(op, network, channel) {}
  /// Of a lane of a delegate. The host's epoch may be over when such a lane begins: its own lanes
  /// do not wait for it. The delegate's is over only when all its lanes have left.
  HostSide(const primitives::OpParams& params,
           const RailParams& rails,
           N& network,
           int channel,
           int delegate)
      : op(params, epoch_of(params, rails, delegate)), rail(&rails), net(op, network, channel) {}
  HostSide(const HostSide&) = delete;
  HostSide& operator=(const HostSide&) = delete;

  const layout::NetLayout& layout() const { return rail->net; }
  std::byte* at(std::int64_t offset) const { return rail->segment + offset; }

 private:
  static std::uint64_t epoch_of(const primitives::OpParams& params,
                                const RailParams& rails,
                                int delegate) {
    const auto* local = layout::array_at<layout::LocalState>(
        rails.segment, rails.net.delegate(delegate) + params.layout.local);
    return Exec::Memory::load(&local->epoch.value) + 1;
  }
};

/// Waits until the slot of chunk `number` may be written: `freed` counts what the peer has read
/// there. False if the group gave up.
template <primitives::Executor Exec, primitives::Net N, primitives::Coop G>
[[nodiscard]] bool await_slot(
    G group, const HostSide<Exec, N>& host, int peer, std::uint32_t freed, std::uint64_t number) {
  const primitives::WaitFor wait{primitives::WaitSite::kNetFreed, peer,
                                 host.layout().uses_before(number)};
  return primitives::net_wait(group, host.net, wait, freed);
}

/// Waits for chunk `number` of `peer`. False if the group gave up.
template <primitives::Executor Exec, primitives::Net N, primitives::Coop G>
[[nodiscard]] bool await_chunk(G group,
                               const HostSide<Exec, N>& host,
                               primitives::WaitSite site,
                               int peer,
                               std::uint32_t arrived,
                               std::uint64_t number) {
  const primitives::WaitFor wait{site, peer, host.layout().uses_before(number) + 1};
  return primitives::net_wait(group, host.net, wait, arrived);
}

/// Adds 1 to a signal of the peer, behind everything that this lane read. False if the group gave
/// up.
template <primitives::Executor Exec, primitives::Net N, primitives::Coop G>
[[nodiscard]] bool tell(G group, const HostSide<Exec, N>& host, int peer, std::uint32_t signal) {
  return primitives::net_tell(group, host.net, peer,
                              {.strength = primitives::SignalStrength::kWeak, .slot = signal});
}

/// True for the last of `num_lanes` lanes that are done with the rails: it may count on.
template <primitives::Executor Exec, primitives::Coop G>
bool is_last_on_rails(G group, const primitives::OpContext<Exec>& op, int num_lanes) {
  group.sync();
  std::uint64_t others = 0;
  if (group.thread_rank() == 0) {
    // [sync:leave-rails] release: this lane's reads of the counters. acquire: those of the lanes
    // before it.
    others =
        Exec::Memory::fetch_add_acq_rel_gpu(op.stage(layout::Stage::kRailLeft), std::uint64_t{1});
  }
  return group.broadcast(others) + 1 == static_cast<std::uint64_t>(num_lanes);
}

/// The number of an operation's chunk among all that go by; `counters` holds those of the
/// operations before.
template <primitives::Executor Exec>
std::uint64_t number_of(const RailParams& rail,
                        std::int64_t counters,
                        int lane,
                        const ChunkView& chunks,
                        std::int64_t chunk) {
  using Memory = typename Exec::Memory;
  return Memory::load(rail.counter(counters, lane)) +
         static_cast<std::uint64_t>(Memory::load(chunks.before + chunk));
}

/// One thread: the chunks of an operation are over.
template <primitives::Executor Exec>
void count_on(const RailParams& rail, std::int64_t counters, int lane, const ChunkView& chunks) {
  using Memory = typename Exec::Memory;
  Memory::store(rail.counter(counters, lane),
                number_of<Exec>(rail, counters, lane, chunks, chunks.num_chunks));
}

}  // namespace ep::internode
