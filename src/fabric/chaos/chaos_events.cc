// SPDX-License-Identifier: Apache-2.0
// Events: held, shuffled, repeated where asked for; stale writes.
#include "base/check.h"
#include "base/hash.h"
#include "fabric/chaos/chaos_context.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

namespace ep::fabric {

int ChaosContext::poll(std::span<NetEvent> events) {
  ++now_;
  shared_.faults.note_poll();
  apply_faults();
  release_posts();
  collect_events();
  land_stale_writes();
  return give_events(events);
}

bool ChaosContext::is_holding() const {
  return !completions_.is_empty() || std::any_of(peers_.begin(), peers_.end(), [](const Peer& p) {
    return !p.posts.is_empty() || !p.arrivals.is_empty();
  });
}

void ChaosContext::collect_events() {
  constexpr std::size_t kBatch = 32;
  std::array<NetEvent, kBatch> batch;
  std::size_t num_events = kBatch;
  while (num_events == kBatch) {
    num_events = static_cast<std::size_t>(shared_.inner.poll(context_, batch));
    for (std::size_t i = 0; i < num_events; ++i) collect(batch[i]);
  }
}

void ChaosContext::collect(const NetEvent& event) {
  if (event.kind == NetEvent::Kind::kArrival) {
    shared_.faults.note_event(event.peer);
    const ChaosPeerState state = shared_.faults.state(event.peer);
    if (state == ChaosPeerState::kVanished || state == ChaosPeerState::kReset) {
      ++counts_[ChaosDeed::kLost];
    } else {
      hold_arrival(event);
    }
    return;
  }
  Flight& flight = flights_[event.cookie];
  --flight.num_under_way;
  if (event.kind == NetEvent::Kind::kFailure && flight.error == 0) flight.error = event.error;
  finish_if_done(event.cookie);
}

void ChaosContext::hold_arrival(const NetEvent& event) {
  Peer& peer = peer_of(event.peer);
  maybe_stall(peer.arrivals_quiet_until, config_.stall, peer.arrival_random);
  const Late late{.event = event, .came_at = now_};
  peer.arrivals.push(late, due(config_.late_arrival, peer.arrival_random),
                     peer.arrival_random.next());
  if (peer.arrival_random.chance(config_.duplicate_arrival_permille)) {
    ++counts_[ChaosDeed::kDuplicates];
    peer.arrivals.push(late, due({1000, config_.late_arrival.max_polls}, peer.arrival_random),
                       peer.arrival_random.next());
  }
}

void ChaosContext::finish_if_done(std::uint64_t index) {
  Flight& flight = flights_[index];
  if (flight.num_unposted > 0 || flight.num_under_way > 0) return;
  const NetEvent::Kind success =
      flight.op.is_read ? NetEvent::Kind::kReadDone : NetEvent::Kind::kSourceFree;
  if (flight.error != 0) ++counts_[ChaosDeed::kFailed];
  if (!flight.is_lost) {
    hold_completion({.kind = flight.error == 0 ? success : NetEvent::Kind::kFailure,
                     .peer = flight.op.peer,
                     .cookie = flight.op.cookie,
                     .error = flight.error},
                    flight.source);
  }
  flight = {};
  free_flights_.push_back(index);
}

ChaosContext::Source ChaosContext::source_of(const ChaosOp& op) const {
  if (op.is_read || !config_.checks_sources) return {};
  const std::span<const std::byte> window =
      shared_.windows[static_cast<std::size_t>(op.local.window)];
  const std::span bytes =
      window.subspan(static_cast<std::size_t>(op.local.offset), static_cast<std::size_t>(op.bytes));
  return {.bytes = bytes, .hash = base::fnv1a_32(bytes)};
}

void ChaosContext::hold_completion(const NetEvent& event, const Source& source) {
  const Late late{.event = event, .came_at = now_, .source = source};
  const std::uint64_t at = due(config_.late_completion, completion_random_);
  const std::uint64_t key = completion_random_.next();
  completions_.push(late, at, config_.late_completion.permille > 0 ? key : 0);
  const bool is_doubled = event.kind == NetEvent::Kind::kSourceFree &&
                          completion_random_.chance(config_.duplicate_source_free_permille);
  if (is_doubled) {
    ++counts_[ChaosDeed::kDuplicates];
    completions_.push(late, due({1000, config_.late_completion.max_polls}, completion_random_),
                      completion_random_.next());
  }
}

int ChaosContext::give_events(std::span<NetEvent> events) {
  std::size_t num_given = 0;
  if (quiet_until_ > now_) return 0;
  while (num_given < events.size()) {
    const std::optional<NetEvent> event = next_event();
    if (!event) break;
    events[num_given++] = *event;
  }
  return static_cast<int>(num_given);
}

/// From a peer drawn anew each time, or a completion: so contexts and peers mix.
std::optional<NetEvent> ChaosContext::next_event() {
  const int num_sources = num_peers() + 1;
  const int first = turn_random_.below(num_sources);
  for (int i = 0; i < num_sources; ++i) {
    const int source = (first + i) % num_sources;
    if (source == num_peers()) {
      if (const auto event = next_completion()) return event;
    } else if (!is_silent(source)) {
      if (const auto event = next_arrival(peer_of(source))) return event;
    }
  }
  return std::nullopt;
}

std::optional<NetEvent> ChaosContext::next_arrival(Peer& peer) {
  if (peer.arrivals_quiet_until > now_) return std::nullopt;
  const std::optional<std::size_t> next = peer.arrivals.ready(now_);
  if (!next) return std::nullopt;
  const Late late = peer.arrivals.take(*next);
  ++counts_[ChaosDeed::kArrivals];
  if (*next > 0) ++counts_[ChaosDeed::kReorderedArrivals];
  if (late.came_at < now_) ++counts_[ChaosDeed::kLateArrivals];
  return late.event;
}

std::optional<NetEvent> ChaosContext::next_completion() {
  const std::optional<std::size_t> next = completions_.ready(now_);
  if (!next) return std::nullopt;
  const Late late = completions_.take(*next);
  if (!late.source.bytes.empty() && base::fnv1a_32(late.source.bytes) != late.source.hash) {
    ++counts_[ChaosDeed::kTouchedSources];
  }
  if (*next > 0) ++counts_[ChaosDeed::kReorderedCompletions];
  if (late.came_at < now_) ++counts_[ChaosDeed::kLateCompletions];
  return late.event;
}

void ChaosContext::land_stale_writes() {
  for (std::size_t i = 0; i < config_.stale_writes.size(); ++i) {
    const ChaosStaleWrite& stale = config_.stale_writes[i];
    if (stale_landed_[i] || stale.context != context_ || stale.at_poll > now_) continue;
    stale_landed_[i] = true;
    ++counts_[ChaosDeed::kStaleWrites];
    if (!stale.bytes.empty()) {
      EP_CHECK(static_cast<std::size_t>(stale.dst.window) < shared_.windows.size());
      const std::span window = shared_.windows[static_cast<std::size_t>(stale.dst.window)];
      EP_CHECK(static_cast<std::size_t>(stale.dst.offset) + stale.bytes.size() <= window.size());
      std::memcpy(window.subspan(static_cast<std::size_t>(stale.dst.offset)).data(),
                  stale.bytes.data(), stale.bytes.size());
    }
    if (stale.immediate) {
      hold_arrival(
          {.kind = NetEvent::Kind::kArrival, .peer = stale.peer, .immediate = *stale.immediate});
    }
  }
}

}  // namespace ep::fabric
