// SPDX-License-Identifier: Apache-2.0
// The arena protocol over memory of a GPU.
#include "fabric/cuda/arena.h"

#include "base/check.h"
#include "fabric/arena_setup.h"
#include "fabric/cuda/memory.h"

#include <utility>

namespace ep::fabric {

namespace {

/// All ranks of a CUDA arena are on one host.
constexpr int kOnlyNode = 0;

}  // namespace

Result<std::unique_ptr<CudaArena>> CudaArena::create(Bootstrap& bootstrap,
                                                     int device,
                                                     std::int64_t control_bytes,
                                                     base::Deadline deadline) {
  EP_TRY_ASSIGN(std::unique_ptr<ArenaState> state,
                create_arena_state(bootstrap, CudaMemory::open(device, bootstrap.num_ranks()),
                                   control_bytes, kOnlyNode, deadline));
  return std::unique_ptr<CudaArena>(new CudaArena(std::move(state)));
}

CudaArena::CudaArena(std::unique_ptr<ArenaState> state) : state_(std::move(state)) {}

CudaArena::~CudaArena() = default;

std::int64_t CudaArena::segment_bytes(std::int64_t bytes) {
  return (bytes + kCudaGranule - 1) / kCudaGranule * kCudaGranule;
}

std::int64_t CudaArena::overhead_bytes(int num_ranks) {
  return segment_bytes(CudaMemory::table_bytes(num_ranks));
}

int CudaArena::rank() const { return state_->rank(); }

int CudaArena::num_ranks() const { return state_->num_ranks(); }

std::byte* CudaArena::base(int peer, int segment) const { return state_->base(peer, segment); }

Arena::RoleView CudaArena::role_view() const {
  const auto& memory = static_cast<const CudaMemory&>(state_->memory());
  return {.peer_table = memory.device_table(), .gone_flags = state_->gone_flags()};
}

Result<Segment> CudaArena::add_segment(std::int64_t bytes, base::Deadline deadline) {
  return state_->add_segment(bytes, deadline);
}

std::optional<Location> CudaArena::locate(const void* address, std::int64_t bytes) const {
  return state_->locate(address, bytes);
}

std::int64_t CudaArena::total_bytes() const { return state_->total_bytes(); }

int CudaArena::num_segments() const { return state_->num_segments(); }

}  // namespace ep::fabric
