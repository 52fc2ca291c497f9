// SPDX-License-Identifier: Apache-2.0
// What chaos does in one context: holds posts and events back, cuts, shuffles, refuses.
#pragma once

#include "fabric/chaos/chaos.h"
#include "fabric/chaos/held_queue.h"
#include "fabric/chaos/peer_faults.h"
#include "fabric/chaos/random.h"
#include "fabric/net/transport.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ep::fabric {

/// A WriteOp or a ReadOp.
struct ChaosOp {
  bool is_read = false;
  int peer = 0;
  WindowPlace local{};
  WindowPlace remote{};
  std::int64_t bytes = 0;
  std::optional<std::uint32_t> immediate{};
  std::uint64_t cookie = 0;

  static ChaosOp of(const WriteOp& op);
  static ChaosOp of(const ReadOp& op);
};

/// What all contexts of a transport share; outlives them.
struct ChaosShared {
  Transport& inner;
  const ChaosConfig& config;
  ArrivalOrder order;
  bool may_tear;
  PeerFaults& faults;
  std::span<const std::span<std::byte>> windows{};  ///< of this rank
};

class ChaosContext {
 public:
  ChaosContext(const ChaosShared& shared, int context);

  /// The places have been checked.
  Posted post(const ChaosOp& op);
  int poll(std::span<NetEvent> events);
  /// Something will happen only by further polls.
  bool is_holding() const;
  /// Nothing is held or under way.
  bool is_idle() const { return !is_holding() && free_flights_.size() == flights_.size(); }
  std::uint64_t num_polls() const { return now_; }
  const ChaosCounts& counts() const { return counts_; }

 private:
  /// Where a write came from, and the hash of what was there when it was posted.
  struct Source {
    std::span<const std::byte> bytes{};
    std::uint32_t hash = 0;
  };
  /// An operation until its completion is known; its index is the cookie of its pieces.
  struct Flight {
    ChaosOp op{};
    Source source{};
    int num_unposted = 0;
    int num_under_way = 0;
    int error = 0;
    bool is_used = false;
    bool is_lost = false;  ///< it will not be heard of again
  };
  struct Piece {
    std::uint64_t flight = 0;
    std::int64_t offset = 0;
    std::int64_t bytes = 0;
    std::optional<std::uint32_t> immediate{};
    std::uint64_t asked_at = 0;  ///< poll
  };
  struct Late {
    NetEvent event{};
    std::uint64_t came_at = 0;  ///< poll
    Source source{};            ///< kSourceFree
  };
  struct Peer {
    Peer(const ChaosShared& shared, int context, int peer);
    HeldQueue<Piece> posts;
    HeldQueue<Late> arrivals;
    ChaosRandom post_random;
    ChaosRandom arrival_random;
    std::uint64_t posts_quiet_until = 0;
    std::uint64_t arrivals_quiet_until = 0;
    int num_lost = 0;
    bool is_forgotten = false;
  };

  // Posting.
  bool refuses(int peer);
  std::optional<std::uint64_t> new_flight(const ChaosOp& op);
  void hold(std::uint64_t flight);
  void hold_pieces(std::uint64_t flight, Peer& peer);
  void hold_piece(Peer& peer, const Piece& piece);
  std::vector<Piece> cut(std::uint64_t flight, ChaosRandom& random);
  void release_posts();
  bool release_one(Peer& peer);
  Posted post_inner(const Flight& flight, const Piece& piece);
  void after_post(Peer& peer, const Piece& piece);

  // Events.
  void collect_events();
  void collect(const NetEvent& event);
  void hold_arrival(const NetEvent& event);
  void finish_if_done(std::uint64_t flight);
  void hold_completion(const NetEvent& event, const Source& source);
  Source source_of(const ChaosOp& op) const;
  int give_events(std::span<NetEvent> events);
  std::optional<NetEvent> next_event();
  std::optional<NetEvent> next_arrival(Peer& peer);
  std::optional<NetEvent> next_completion();
  void land_stale_writes();

  // Time and faults.
  std::uint64_t due(const ChaosPause& pause, ChaosRandom& random) const;
  void maybe_stall(std::uint64_t& quiet_until, const ChaosPause& pause, ChaosRandom& random);
  bool is_silent(int peer) const;
  void apply_faults();
  void forget(int peer, int error);

  Peer& peer_of(int peer) { return peers_[static_cast<std::size_t>(peer)]; }
  int num_peers() const { return static_cast<int>(peers_.size()); }

  const ChaosShared& shared_;
  const ChaosConfig& config_;
  const int context_;
  std::uint64_t now_ = 0;  // polls so far
  std::uint64_t quiet_until_ = 0;
  int busy_calls_left_ = 0;
  std::vector<Peer> peers_;
  std::vector<Flight> flights_;
  std::vector<std::uint64_t> free_flights_;
  HeldQueue<Late> completions_;
  ChaosRandom completion_random_;
  ChaosRandom busy_random_;
  ChaosRandom turn_random_;
  std::vector<bool> stale_landed_;
  ChaosCounts counts_;
};

}  // namespace ep::fabric
