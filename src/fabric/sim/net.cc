// SPDX-License-Identifier: Apache-2.0
// An unordered network.
#include "fabric/sim/net.h"

#include "base/check.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace ep::fabric::sim {

using primitives::NetPut;
using primitives::SignalStrength;

Wires::Wires(Machine& machine, std::vector<std::byte*> segments, int num_contexts, int num_slots)
    : machine_(machine),
      segments_(std::move(segments)),
      num_contexts_(num_contexts),
      num_slots_(num_slots),
      slots_(segments_.size() * static_cast<std::size_t>(num_slots)) {
  machine.add_device(this);
}

Wires::Stream& Wires::stream(int src, int context, int dst) {
  auto& stream = streams_[{src, context, dst}];
  if (stream) return *stream;
  stream = std::make_unique<Stream>(Stream{.src = src, .context = context});
  const std::string name = "network from rank " + std::to_string(src) + " to rank " +
                           std::to_string(dst) + ", context " + std::to_string(context);
  for (Track& track : stream->tracks) {
    track.read = machine_.checker().add_agent(src, name + ", reads");
    track.land = machine_.checker().add_agent(src, name);
  }
  return *stream;
}

Wires::Slot& Wires::slot(int rank, std::uint32_t index) {
  EP_CHECK(index < static_cast<std::uint32_t>(num_slots_));
  return slots_[static_cast<std::size_t>(rank) * static_cast<std::size_t>(num_slots_) + index];
}

void Wires::put(int src, int context, const NetPut& put, SiteId site) {
  Checker& checker = machine_.checker();
  const AgentId thread = machine_.running().agent;
  Stream& to_peer = stream(src, context, put.peer);
  auto flying = std::make_unique<Put>();
  flying->stream = &to_peer;
  flying->put = put;
  flying->number = to_peer.num_put++;
  flying->track = static_cast<int>(machine_.random().below(kAgents));
  Track& own = to_peer.tracks[static_cast<std::size_t>(flying->track)];
  flying->moment = ++own.newest;
  flying->view = checker.view(thread);
  flying->covers = flying->view;
  for (Track& track : to_peer.tracks) {
    if (&track != &own && put.signal.strength != SignalStrength::kStrong) continue;
    flying->covers.raise(track.read, track.newest);
    flying->covers.raise(track.land, track.newest);
  }
  flying->site = site;
  flying->landed = 0;
  checker.tick(thread);
  flying_.push_back(std::move(flying));
}

void Wires::read_source(Put& put) {
  const auto bytes = static_cast<std::size_t>(put.put.bytes);
  const std::byte* from = segments_[static_cast<std::size_t>(put.stream->src)] + put.put.src_offset;
  const Track& track = put.stream->tracks[static_cast<std::size_t>(put.track)];
  machine_.checker().read({track.read, put.moment, &put.view, true}, from, bytes, put.site);
  put.bytes.assign(from, from + bytes);
  put.has_read = true;
}

/// The last bytes first, so that whoever polls the end of a row learns nothing.
void Wires::land_some(Put& put, Random& random) {
  constexpr std::int64_t kPart = 16;
  const std::int64_t left = put.put.bytes - put.landed;
  const std::int64_t part = std::min(left, kPart * static_cast<std::int64_t>(1 + random.below(4)));
  const std::int64_t offset = left - part;
  const Track& track = put.stream->tracks[static_cast<std::size_t>(put.track)];
  std::byte* to = segments_[static_cast<std::size_t>(put.put.peer)] + put.put.dst_offset + offset;
  machine_.checker().write({track.land, put.moment, &put.view, true}, to,
                           static_cast<std::size_t>(part), put.site);
  std::memcpy(to, put.bytes.data() + offset, static_cast<std::size_t>(part));
  put.landed += part;
}

/// A strong signal waits for all puts of its stream before it.
bool Wires::may_signal(const Put& put) const {
  if (put.put.signal.strength != SignalStrength::kStrong) return true;
  return std::none_of(flying_.begin(), flying_.end(), [&](const auto& other) {
    return other->stream == put.stream && other->number < put.number;
  });
}

void Wires::apply(const Put& put) {
  if (put.put.signal.strength == SignalStrength::kNone) return;
  Slot& target = slot(put.put.peer, put.put.signal.slot);
  target.value += put.put.signal.add;
  target.view.join(put.covers);
  machine_.wake(&target);
}

void Wires::act(Random& random) {
  const std::size_t index = random.below(flying_.size());
  Put& put = *flying_[index];
  if (!put.has_read) return read_source(put);
  if (put.landed < put.put.bytes) return land_some(put, random);
  if (!may_signal(put)) return;
  apply(put);
  flying_.erase(flying_.begin() + static_cast<std::ptrdiff_t>(index));
}

int NetOfRank::num_flying(int context) const {
  return static_cast<int>(
      std::count_if(wires_->flying_.begin(), wires_->flying_.end(), [&](const auto& put) {
        return put->stream->src == rank_ && put->stream->context == context;
      }));
}

bool NetOfRank::try_put(int context, const NetPut& put, const At& at) {
  Machine& machine = wires_->machine_;
  machine.step();
  machine.running().polled = nullptr;
  if (num_flying(context) >= kWindow) return false;
  const SiteId site = machine.sites().of(at);
  NetPut sent = put;
  if (sent.signal.strength == SignalStrength::kStrong &&
      machine.sites().is_weakened(site, Order::kNetStrength)) {
    sent.signal.strength = SignalStrength::kWeak;
  }
  wires_->put(rank_, context, sent, site);
  return true;
}

std::uint64_t NetOfRank::signal_value(std::uint32_t slot) {
  Machine& machine = wires_->machine_;
  machine.step();
  const Wires::Slot& seen = wires_->slot(rank_, slot);
  machine.checker().view(machine.running().agent).join(seen.view);
  machine.running().polled = &seen;
  return seen.value;
}

bool NetOfRank::is_flushed(int context) {
  Machine& machine = wires_->machine_;
  machine.step();
  machine.running().polled = nullptr;
  const bool is_reading =
      std::any_of(wires_->flying_.begin(), wires_->flying_.end(), [&](const auto& put) {
        return put->stream->src == rank_ && put->stream->context == context && !put->has_read;
      });
  if (is_reading) return false;
  VectorClock& view = machine.checker().view(machine.running().agent);
  for (const auto& [key, stream] : wires_->streams_) {
    if (key[0] != rank_ || key[1] != context) continue;
    for (const Wires::Track& track : stream->tracks) view.raise(track.read, track.newest);
  }
  return true;
}

void NetOfRank::progress(int /*context*/) {
  Machine& machine = wires_->machine_;
  machine.running().polled = nullptr;
  machine.step();
}

}  // namespace ep::fabric::sim
