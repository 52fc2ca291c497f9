// SPDX-License-Identifier: Apache-2.0
// Creation of an arena: agreement first, then memory, then agreement that all have it.
#include "fabric/arena_setup.h"

#include "base/check.h"
#include "fabric/arena_identity.h"
#include "fabric/arena_mesh.h"
#include "fabric/bootstrap/wire.h"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace ep::fabric {
namespace {

/// A rank that failed at the deadline still has to tell the others.
constexpr std::chrono::milliseconds kAgreementGrace{2000};

std::chrono::milliseconds remaining(base::Deadline deadline) {
  return std::chrono::milliseconds(deadline.remaining_ms());
}

/// Collective: one failure among those of the ranks, the same on all of them. A rank that failed
/// leaves, which others may report as kPeerTimeout: its own word counts more than theirs.
Status agree(Bootstrap& bootstrap, const Status& mine, base::Deadline deadline) {
  const Bootstrap::Bytes payload = mine.ok() ? Bootstrap::Bytes() : encode_status(mine);
  EP_TRY_ASSIGN(const std::vector<Bootstrap::Bytes> all,
                bootstrap.all_gather(payload, remaining(deadline.plus(kAgreementGrace))));
  Status chosen;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    const Status theirs = decode_status(all[rank]);
    const bool is_better = chosen.code() == Errc::kPeerTimeout && theirs.code() != chosen.code();
    if (!chosen.ok() && !is_better) continue;
    chosen = Status(theirs.code(), "rank " + std::to_string(rank) + ": " + theirs.message(),
                    theirs.native_code());
    chosen.set_peer(theirs.peer());
  }
  return chosen;
}

Result<std::vector<ArenaIdentity>> exchange_identities(Bootstrap& bootstrap,
                                                       const ArenaIdentity& self,
                                                       base::Deadline deadline) {
  const Bootstrap::Bytes mine = encode_identity(self);
  EP_TRY_ASSIGN(const std::vector<Bootstrap::Bytes> all,
                bootstrap.all_gather(mine, remaining(deadline)));
  std::vector<ArenaIdentity> identities;
  for (const Bootstrap::Bytes& bytes : all) {
    EP_TRY_ASSIGN(ArenaIdentity identity, decode_identity(bytes));
    identities.push_back(std::move(identity));
  }
  EP_TRY(check_identities(identities));
  return identities;
}

/// Local part of creation, once all ranks know each other.
Result<std::unique_ptr<ArenaState>> build_state(int rank,
                                                std::vector<ArenaIdentity> identities,
                                                const ArenaListener& listener,
                                                std::unique_ptr<SegmentMemory> memory,
                                                base::Deadline deadline) {
  const std::int64_t control_bytes = identities[0].control_bytes;
  EP_TRY_ASSIGN(std::vector<ArenaConnection> connections,
                connect_arenas(identities, rank, listener, deadline));
  memory->meet(rank, identities);
  auto state = std::make_unique<ArenaState>(rank, std::move(identities), std::move(connections),
                                            std::move(memory));
  EP_TRY(state->start());
  EP_TRY(state->add_segment(control_bytes, deadline));
  EP_TRY(state->await_control_segments(deadline));
  return state;
}

}  // namespace

Result<std::unique_ptr<ArenaState>> create_arena_state(
    Bootstrap& bootstrap,
    Result<std::unique_ptr<SegmentMemory>> memory,
    std::int64_t control_bytes,
    int node,
    base::Deadline deadline) {
  Result<ArenaListener> listener = open_arena_listener(bootstrap.num_ranks());
  EP_TRY(agree(bootstrap, memory.ok() ? listener.status() : memory.status(), deadline));
  const ArenaIdentity self =
      make_identity(listener->name, control_bytes, (*memory)->device(), node);
  EP_TRY_ASSIGN(std::vector<ArenaIdentity> identities,
                exchange_identities(bootstrap, self, deadline));
  Result<std::unique_ptr<ArenaState>> state =
      build_state(bootstrap.rank(), std::move(identities), *listener, std::move(*memory), deadline);
  EP_TRY(agree(bootstrap, state.status(), deadline));
  return state;
}

}  // namespace ep::fabric
