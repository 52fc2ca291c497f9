// SPDX-License-Identifier: Apache-2.0
// Posts: refused, held, cut, shuffled; and the faults of peers.
#include "fabric/chaos/chaos_context.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <limits>
#include <utility>

namespace ep::fabric {
namespace {

/// Operations to a peer that vanished, before it is only ever busy: a queue that nobody drains.
constexpr int kMaxLostPerPeer = 16;
/// Completions have no order, whatever they overtake.
constexpr int kNoWindow = std::numeric_limits<int>::max();
constexpr int kNobody = -1;

WindowPlace moved(WindowPlace place, std::int64_t bytes) {
  return {.window = place.window, .offset = place.offset + bytes};
}

int errno_of(const Status& status) {
  return status.native_code() > 0 ? static_cast<int>(status.native_code()) : EIO;
}

template <class Item>
void shuffle(std::vector<Item>& items, ChaosRandom& random) {
  for (std::size_t i = items.size(); i > 1; --i) {
    std::swap(items[i - 1],
              items[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i)))]);
  }
}

}  // namespace

ChaosOp ChaosOp::of(const WriteOp& op) {
  return {.is_read = false,
          .peer = op.peer,
          .local = op.src,
          .remote = op.dst,
          .bytes = op.bytes,
          .immediate = op.immediate,
          .cookie = op.cookie};
}

ChaosOp ChaosOp::of(const ReadOp& op) {
  return {.is_read = true,
          .peer = op.peer,
          .local = op.dst,
          .remote = op.src,
          .bytes = op.bytes,
          .cookie = op.cookie};
}

ChaosContext::Peer::Peer(const ChaosShared& shared, int context, int peer)
    : posts(shared.order, shared.config.window_ops),
      arrivals(shared.order, shared.config.window_ops),
      post_random(chaos_stream(
          shared.config.seed, shared.inner.rank(), context, peer, ChaosPurpose::kPost)),
      arrival_random(chaos_stream(
          shared.config.seed, shared.inner.rank(), context, peer, ChaosPurpose::kArrival)) {}

ChaosContext::ChaosContext(const ChaosShared& shared, int context)
    : shared_(shared),
      config_(shared.config),
      context_(context),
      completions_(ArrivalOrder::kUnordered, kNoWindow),
      completion_random_(chaos_stream(
          config_.seed, shared.inner.rank(), context, kNobody, ChaosPurpose::kCompletion)),
      busy_random_(
          chaos_stream(config_.seed, shared.inner.rank(), context, kNobody, ChaosPurpose::kBusy)),
      turn_random_(
          chaos_stream(config_.seed, shared.inner.rank(), context, kNobody, ChaosPurpose::kTurn)),
      stale_landed_(config_.stale_writes.size()) {
  for (int peer = 0; peer < shared.inner.num_ranks(); ++peer) {
    peers_.emplace_back(shared, context, peer);
  }
  flights_.resize(static_cast<std::size_t>(shared.inner.traits().max_outstanding));
  for (std::size_t i = flights_.size(); i > 0; --i) free_flights_.push_back(i - 1);
}

Posted ChaosContext::post(const ChaosOp& op) {
  if (refuses(op.peer)) {
    ++counts_[ChaosDeed::kBusy];
    return Posted::kBusy;
  }
  if (shared_.faults.state(op.peer) == ChaosPeerState::kVanished) {
    Peer& peer = peer_of(op.peer);
    if (peer.num_lost >= kMaxLostPerPeer) return Posted::kBusy;
    ++peer.num_lost;
    ++counts_[ChaosDeed::kLost];
    return Posted::kYes;
  }
  const std::optional<std::uint64_t> flight = new_flight(op);
  if (!flight) return Posted::kBusy;
  ++counts_[ChaosDeed::kOps];
  shared_.faults.note_event(op.peer);
  if (const int error = shared_.faults.take_failure(op.peer); error != 0) {
    flights_[*flight].error = error;
    finish_if_done(*flight);
  } else {
    hold(*flight);
  }
  return Posted::kYes;
}

bool ChaosContext::refuses(int peer) {
  if (shared_.faults.state(peer) == ChaosPeerState::kReset) return true;
  if (busy_calls_left_ == 0 && busy_random_.chance(config_.busy.permille)) {
    busy_calls_left_ = 1 + busy_random_.below(config_.busy.max_calls);
  }
  if (busy_calls_left_ == 0) return false;
  --busy_calls_left_;
  return true;
}

std::optional<std::uint64_t> ChaosContext::new_flight(const ChaosOp& op) {
  if (free_flights_.empty()) return std::nullopt;
  const std::uint64_t index = free_flights_.back();
  free_flights_.pop_back();
  flights_[index] = {.op = op, .source = source_of(op), .is_used = true};
  return index;
}

void ChaosContext::hold(std::uint64_t flight) {
  Peer& peer = peer_of(flights_[flight].op.peer);
  maybe_stall(peer.posts_quiet_until, config_.stall, peer.post_random);
  maybe_stall(quiet_until_, config_.context_stall, turn_random_);
  hold_pieces(flight, peer);
}

/// Where order is kept, the immediate follows its pieces through the queue; else it is held once
/// the last of them was posted (after_post).
void ChaosContext::hold_pieces(std::uint64_t index, Peer& peer) {
  Flight& flight = flights_[index];
  std::vector<Piece> pieces = cut(index, peer.post_random);
  const bool is_torn = pieces.size() > 1;
  flight.num_unposted = static_cast<int>(pieces.size());
  if (is_torn) {
    ++counts_[ChaosDeed::kTorn];
    counts_[ChaosDeed::kPieces] += pieces.size();
    shuffle(pieces, peer.post_random);
    if (flight.op.immediate) ++flight.num_unposted;
  } else {
    pieces.front().immediate = flight.op.immediate;
  }
  for (const Piece& piece : pieces) hold_piece(peer, piece);
  if (is_torn && flight.op.immediate && shared_.order == ArrivalOrder::kOrdered) {
    hold_piece(peer, {.flight = index,
                      .offset = 0,
                      .bytes = 0,
                      .immediate = flight.op.immediate,
                      .asked_at = now_});
  }
}

void ChaosContext::hold_piece(Peer& peer, const Piece& piece) {
  std::uint64_t at = due(config_.delay, peer.post_random) + 1;  // the next poll is not late
  if (piece.bytes >= config_.big_bytes) at += due(config_.big, peer.post_random) - now_;
  peer.posts.push(piece, at, peer.post_random.next());
}

std::vector<ChaosContext::Piece> ChaosContext::cut(std::uint64_t index, ChaosRandom& random) {
  const std::int64_t bytes = flights_[index].op.bytes;
  std::vector<std::int64_t> ends{bytes};
  const bool is_torn = shared_.may_tear &&
                       bytes >= std::max<std::int64_t>(config_.tear.min_bytes, 2) &&
                       random.chance(config_.tear.permille);
  if (is_torn) {
    for (int more = 1 + random.below(config_.tear.max_pieces - 1); more > 0; --more) {
      ends.push_back(1 + random.below(bytes - 1));
    }
    std::sort(ends.begin(), ends.end());
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  }
  std::vector<Piece> pieces;
  std::int64_t begin = 0;
  for (const std::int64_t end : ends) {
    pieces.push_back({.flight = index, .offset = begin, .bytes = end - begin, .asked_at = now_});
    begin = end;
  }
  return pieces;
}

void ChaosContext::release_posts() {
  if (quiet_until_ > now_) return;
  const int first = turn_random_.below(num_peers());
  for (int i = 0; i < num_peers(); ++i) {
    const int peer = (first + i) % num_peers();
    if (is_silent(peer) || peer_of(peer).posts_quiet_until > now_) continue;
    while (release_one(peer_of(peer))) {
    }
  }
}

/// False: nothing is due, or the inner transport is busy.
bool ChaosContext::release_one(Peer& peer) {
  const std::optional<std::size_t> next = peer.posts.ready(now_);
  if (!next) return false;
  const Piece piece = peer.posts.item(*next);
  Flight& flight = flights_[piece.flight];
  if (flight.error == 0) {
    const Posted posted = post_inner(flight, piece);
    if (posted == Posted::kBusy) return false;
    if (posted == Posted::kYes) {
      ++flight.num_under_way;
    } else {
      flight.error = errno_of(shared_.inner.failure(context_));
    }
  }
  if (*next > 0) ++counts_[ChaosDeed::kReordered];
  if (piece.asked_at + 1 < now_) ++counts_[ChaosDeed::kDelayed];
  peer.posts.take(*next);
  after_post(peer, piece);
  return true;
}

Posted ChaosContext::post_inner(const Flight& flight, const Piece& piece) {
  const ChaosOp& op = flight.op;
  const WindowPlace local = moved(op.local, piece.offset);
  const WindowPlace remote = moved(op.remote, piece.offset);
  if (op.is_read) {
    return shared_.inner.read({.peer = op.peer,
                               .context = context_,
                               .dst = local,
                               .src = remote,
                               .bytes = piece.bytes,
                               .cookie = piece.flight});
  }
  return shared_.inner.write({.peer = op.peer,
                              .context = context_,
                              .src = local,
                              .dst = remote,
                              .bytes = piece.bytes,
                              .immediate = piece.immediate,
                              .cookie = piece.flight});
}

void ChaosContext::after_post(Peer& peer, const Piece& piece) {
  Flight& flight = flights_[piece.flight];
  --flight.num_unposted;
  const bool only_immediate_left = flight.num_unposted == 1 && flight.op.immediate &&
                                   !piece.immediate && shared_.order == ArrivalOrder::kUnordered;
  if (only_immediate_left) {
    hold_piece(peer, {.flight = piece.flight,
                      .offset = 0,
                      .bytes = 0,
                      .immediate = flight.op.immediate,
                      .asked_at = now_});
  }
  finish_if_done(piece.flight);
}

std::uint64_t ChaosContext::due(const ChaosPause& pause, ChaosRandom& random) const {
  return random.chance(pause.permille)
             ? now_ + 1 + static_cast<std::uint64_t>(random.below(pause.max_polls))
             : now_;
}

void ChaosContext::maybe_stall(std::uint64_t& quiet_until,
                               const ChaosPause& pause,
                               ChaosRandom& random) {
  const std::uint64_t until = due(pause, random);
  if (until == now_) return;
  quiet_until = std::max(quiet_until, until);
  ++counts_[ChaosDeed::kStalls];
}

bool ChaosContext::is_silent(int peer) const {
  return shared_.faults.state(peer) == ChaosPeerState::kStopped;
}

void ChaosContext::apply_faults() {
  if (!shared_.faults.has_any()) return;
  for (int peer = 0; peer < num_peers(); ++peer) {
    if (peer_of(peer).is_forgotten) continue;
    const ChaosPeerState state = shared_.faults.state(peer);
    if (state == ChaosPeerState::kReset) forget(peer, shared_.faults.error(peer));
    if (state == ChaosPeerState::kVanished) forget(peer, 0);
  }
}

/// Drops what is held for the peer. Its operations fail with `error`, or are lost where that is 0;
/// those that the inner transport has end when it does, since it may still read their sources.
void ChaosContext::forget(int peer_rank, int error) {
  Peer& peer = peer_of(peer_rank);
  peer.is_forgotten = true;
  peer.posts.clear();
  counts_[ChaosDeed::kLost] += peer.arrivals.size();
  peer.arrivals.clear();
  if (error == 0) {
    completions_.erase_if([&](const Late& late) { return late.event.peer == peer_rank; });
  }
  for (std::uint64_t index = 0; index < flights_.size(); ++index) {
    Flight& flight = flights_[index];
    if (!flight.is_used || flight.op.peer != peer_rank) continue;
    flight.error = error;
    flight.is_lost = error == 0;
    if (flight.is_lost) ++counts_[ChaosDeed::kLost];
    flight.num_unposted = 0;
    finish_if_done(index);
  }
}

}  // namespace ep::fabric
