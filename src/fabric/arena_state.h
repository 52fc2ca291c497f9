// SPDX-License-Identifier: Apache-2.0
// The inside of an arena, whatever its memory: what its service thread and its callers share.
#pragma once

#include "base/deadline.h"
#include "fabric/arena_identity.h"
#include "fabric/arena_mesh.h"
#include "fabric/arena_message.h"
#include "fabric/mapping.h"
#include "fabric/segment.h"
#include "fabric/segment_memory.h"

#include <ep/status.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace ep::fabric {

class ArenaState {
 public:
  ArenaState(int rank,
             std::vector<ArenaIdentity> identities,
             std::vector<ArenaConnection> connections,
             std::unique_ptr<SegmentMemory> memory);
  ArenaState(const ArenaState&) = delete;
  ArenaState& operator=(const ArenaState&) = delete;
  /// Ends the service thread and closes the connections: peers see this rank gone.
  ~ArenaState();

  /// Starts the service thread. Errors: kFabric.
  Status start();

  Result<Segment> add_segment(std::int64_t bytes, base::Deadline deadline);

  /// Waits until segment 0 of every peer is mapped. Errors: kPeerTimeout naming those that are not.
  Status await_control_segments(base::Deadline deadline);

  std::optional<Location> locate(const void* address, std::int64_t bytes) const;
  std::int64_t total_bytes() const;
  int num_segments() const;

  // Ranks of other nodes: HostArena.
  void stand_in(int rank, std::byte* base);
  void mark_remote_gone(int rank);

  int rank() const { return rank_; }
  int num_ranks() const { return static_cast<int>(identities_.size()); }
  /// nullptr where not mapped.
  std::byte* base(int peer, int segment) const;
  /// [num_ranks][kMaxSegments] bases, for the host.
  const std::atomic<std::byte*>* peer_table() const { return table_.get(); }
  const std::atomic<std::uint32_t>* gone_flags() const { return memory_->gone_flags(); }
  const SegmentMemory& memory() const { return *memory_; }

 private:
  /// What a peer has said about the segment that is being added.
  enum class Answer : std::uint8_t { kNone, kMapped, kRefused };
  struct Announcement {
    int segment = -1;
    std::vector<Answer> answers;
    /// Native code of a refusal; 0: the memory was not what was announced.
    int error = 0;
  };

  Result<int> begin_announcement(const std::shared_ptr<Mapping>& mapping);
  Status announce(int segment, const SegmentMemory::Created& created, base::Deadline deadline);
  Status await_answers(base::Deadline deadline);
  Status judge_answers() const;
  bool has_all_answers() const;
  void withdraw(int segment);

  void serve();
  void serve_peer(int peer);
  bool handle(int peer, Received& received);
  bool map_segment(int peer, const ArenaMessage& message, const SegmentHandle& memory);
  Result<std::shared_ptr<Mapping>> mapping_of(int peer,
                                              const ArenaMessage& message,
                                              const SegmentHandle& memory);
  Status take_segment(int peer, const ArenaMessage& message, const SegmentHandle& memory);
  bool is_mapped(int peer, int segment) const;
  Status publish(int peer, int segment, std::byte* base);
  bool note_answer(int peer, const ArenaMessage& message);
  enum class Departure : std::uint8_t { kDied, kLeft };
  void mark_gone(int peer, Departure departure);
  Status departed_failure() const;

  bool is_gone(int peer) const;
  /// Of this rank's node.
  bool is_near(int peer) const {
    return identities_[static_cast<std::size_t>(peer)].node ==
           identities_[static_cast<std::size_t>(rank_)].node;
  }
  int socket_of(int peer) const {
    return connections_[static_cast<std::size_t>(peer)].socket.get();
  }
  std::shared_ptr<Mapping>& mapping(int peer, int segment);
  std::atomic<std::byte*>& entry(int peer, int segment) const;
  /// The other ranks of the node.
  std::vector<int> peers() const;
  std::vector<int> peers_without_control() const;

  const int rank_;
  const std::vector<ArenaIdentity> identities_;
  /// Closed in the destructor only, so that no other thread ever meets a reused descriptor.
  const std::vector<ArenaConnection> connections_;
  const std::unique_ptr<std::atomic<std::byte*>[]> table_;
  const std::unique_ptr<SegmentMemory> memory_;
  base::UniqueFd stop_;
  std::thread service_;

  /// One segment at a time: taken before mutex_.
  std::mutex adding_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  /// Guarded by mutex_, as all below. [peer * kMaxSegments + segment].
  std::vector<std::shared_ptr<Mapping>> mappings_;
  int next_segment_ = 0;
  Announcement announcement_;
  /// In the order in which this rank noticed.
  std::vector<int> died_;
  std::vector<int> left_;
};

}  // namespace ep::fabric
