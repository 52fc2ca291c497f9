// SPDX-License-Identifier: Apache-2.0
// The arena protocol over memory of this host.
#include "fabric/host/arena.h"

#include "base/check.h"
#include "fabric/arena_setup.h"
#include "fabric/host/memory.h"

#include <utility>

namespace ep::fabric {

Result<std::unique_ptr<HostArena>> HostArena::create(Bootstrap& bootstrap,
                                                     std::int64_t control_bytes,
                                                     base::Deadline deadline,
                                                     int node) {
  std::unique_ptr<SegmentMemory> memory = std::make_unique<HostMemory>(bootstrap.num_ranks());
  EP_TRY_ASSIGN(std::unique_ptr<ArenaState> state,
                create_arena_state(bootstrap, std::move(memory), control_bytes, node, deadline));
  return std::unique_ptr<HostArena>(new HostArena(std::move(state)));
}

HostArena::HostArena(std::unique_ptr<ArenaState> state) : state_(std::move(state)) {}

HostArena::~HostArena() = default;

void HostArena::stand_in(int rank, std::byte* base) { state_->stand_in(rank, base); }

void HostArena::mark_gone(int rank) { state_->mark_remote_gone(rank); }

int HostArena::rank() const { return state_->rank(); }

int HostArena::num_ranks() const { return state_->num_ranks(); }

std::byte* HostArena::base(int peer, int segment) const { return state_->base(peer, segment); }

const std::atomic<std::byte*>* HostArena::peer_table() const { return state_->peer_table(); }

const std::atomic<std::uint32_t>* HostArena::gone_flags() const { return state_->gone_flags(); }

Result<Segment> HostArena::add_segment(std::int64_t bytes, base::Deadline deadline) {
  return state_->add_segment(bytes, deadline);
}

std::optional<Location> HostArena::locate(const void* address, std::int64_t bytes) const {
  return state_->locate(address, bytes);
}

std::int64_t HostArena::total_bytes() const { return state_->total_bytes(); }

int HostArena::num_segments() const { return state_->num_segments(); }

}  // namespace ep::fabric
