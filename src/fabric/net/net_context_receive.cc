// SPDX-License-Identifier: Apache-2.0
// What the network reports. Nothing that a peer sent is used as an index before it was checked.
#include "fabric/net/net_context.h"

#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

namespace ep::fabric {
namespace {

constexpr int kCookieKindShift = 56;
constexpr int kCookiePeerShift = 32;
constexpr std::uint64_t kCookiePeerMask = 0xffffff;

std::string hex(std::uint32_t bits) {
  char text[16];
  std::snprintf(text, sizeof(text), "0x%08x", static_cast<unsigned>(bits));
  return text;
}

/// An acknowledgement is due when half a window waits for it.
bool is_half(std::uint64_t waiting, std::uint64_t window) { return 2 * waiting >= window; }

}  // namespace

void NetContext::handle(const NetEvent& event) {
  if (event.kind != NetEvent::Kind::kArrival) return complete(event);
  if (event.peer < 0 || event.peer >= shared_.num_ranks() || event.peer == shared_.rank()) {
    return shared_.peers.fail(Status(Errc::kFabric, "context " + std::to_string(index_) +
                                                        ": an arrival from rank " +
                                                        std::to_string(event.peer) + " of " +
                                                        std::to_string(shared_.num_ranks())));
  }
  arrive(event.peer, event.immediate);
}

/// An operation of this rank is over. Its cookie is this rank's own, but the network may repeat it.
void NetContext::complete(const NetEvent& event) {
  const auto kind = static_cast<CookieKind>(event.cookie >> kCookieKindShift);
  const auto peer = static_cast<int>(event.cookie >> kCookiePeerShift & kCookiePeerMask);
  const auto number = static_cast<std::uint32_t>(event.cookie);
  const bool is_known =
      peer < shared_.num_ranks() && num_outstanding_ > 0 && complete_source(kind, peer, number);
  if (!is_known) {
    return shared_.peers.fail(Status(
        Errc::kInternal, "context " + std::to_string(index_) + ": the network completed cookie " +
                             std::to_string(event.cookie) + ", which is not under way"));
  }
  --num_outstanding_;
  if (event.kind != NetEvent::Kind::kFailure) return;
  shared_.peers.kill(
      peer, Status(Errc::kFabric,
                   "context " + std::to_string(index_) + ": an operation to rank " +
                       std::to_string(peer) + " failed: " + std::strerror(event.error),  // NOLINT
                   event.error));
  with_ops_.insert(peer);
  with_control_.insert(peer);
}

bool NetContext::complete_source(CookieKind kind, int peer, std::uint32_t number) {
  Stream& stream = stream_of(peer);
  const auto release = [number](std::span<std::uint8_t> busy) {
    return std::exchange(busy[number & (busy.size() - 1)], std::uint8_t{0}) != 0;
  };
  switch (kind) {
    case CookieKind::kBare:
      return true;
    case CookieKind::kOp:
      return complete_op(stream, number);
    case CookieKind::kRecord:
      return release(stream.send.busy_records);
    case CookieKind::kPart:
      return release(stream.send.busy_parts);
    case CookieKind::kAck:
      // The next acknowledgement may have waited for this cell.
      if (stream.receive.is_ack_due) with_control_.insert(peer);
      return number < kNumAckCells &&
             std::exchange(stream.receive.is_ack_source_busy[number], false);
    case CookieKind::kMessage:
      return number < kNumMessageCells && messages_[number].release();
  }
  return false;
}

bool NetContext::complete_op(Stream& stream, std::uint32_t position) {
  OpQueue& ops = stream.send.ops;
  const std::uint32_t distance = position - static_cast<std::uint32_t>(ops.head);
  if (distance >= ops.tail - ops.head) return false;
  PendingOp& op = ops.at(ops.head + distance);
  if (op.num_open == 0) return false;
  --op.num_open;
  if (op.is_posted && op.num_open == 0) finish_op(stream, op);
  return true;
}

void NetContext::arrive(int peer, std::uint32_t bits) {
  if (shared_.peers.is_dead(peer)) return;
  Stream& stream = stream_of(peer);
  ++stream.counters.arrivals;
  shared_.peers.heard(peer, now_ns_);
  if (shared_.peers.state(peer) == PeerState::kSuspected) shared_.peers.set_suspected(peer, false);
  const std::optional<Immediate> immediate = decode_immediate(bits);
  if (immediate.has_value() && immediate->context == index_ && take(peer, *immediate)) return;
  shared_.peers.kill(
      peer, Status(Errc::kFabric, "context " + std::to_string(index_) + ": immediate " + hex(bits) +
                                      " of rank " + std::to_string(peer) +
                                      " is none that a rank sends now (" + describe(peer) + ")"));
}

bool NetContext::take(int peer, const Immediate& immediate) {
  if (immediate.kind == ImmediateKind::kControl) return take_control(peer, immediate.payload);
  if (!is_known_here(immediate)) return false;
  if (is_stale(peer, immediate)) {
    ++stream_of(peer).counters.stale;
    return true;
  }
  if (immediate.kind == ImmediateKind::kAck) return take_ack(peer, immediate.payload);
  ReceiveState& receive = stream_of(peer).receive;
  const auto window = static_cast<std::uint64_t>(shared_.config.arrival_window);
  if (++receive.arrivals - receive.acked.arrivals > window) return false;
  if (!take_credited(peer, immediate)) return false;
  note_ack_due(peer);
  return true;
}

/// Whether this kind of network has such an immediate at all.
bool NetContext::is_known_here(const Immediate& immediate) const {
  switch (immediate.kind) {
    case ImmediateKind::kPut:
    case ImmediateKind::kPutPart:
    case ImmediateKind::kPartRecord:
      return !shared_.is_ordered();
    case ImmediateKind::kAck:
      return immediate.payload < kNumAckCells;
    case ImmediateKind::kPutSignal:
    case ImmediateKind::kRecord:
    case ImmediateKind::kControl:
      return true;
  }
  return false;
}

/// Whether the cell that an immediate speaks of comes from an earlier life of the peer.
bool NetContext::is_stale(int peer, const Immediate& immediate) const {
  const ScratchLayout& layout = shared_.layout;
  std::int64_t cell = 0;
  if (immediate.kind == ImmediateKind::kRecord) {
    cell = layout.record_in(index_, peer, immediate.payload);
  } else if (immediate.kind == ImmediateKind::kPartRecord) {
    cell = layout.part_in(index_, peer, immediate.payload);
  } else if (immediate.kind == ImmediateKind::kAck) {
    cell = layout.ack_in(index_, peer, immediate.payload);
  } else {
    return false;
  }
  // Every cell begins with its writer's incarnation.
  return shared_.load_cell<std::uint64_t>(cell) != shared_.incarnation_of(peer);
}

bool NetContext::take_credited(int peer, const Immediate& immediate) {
  Stream& stream = stream_of(peer);
  const auto apply = [this](std::uint32_t slot, std::uint64_t add) {
    shared_.add_signal(slot, add);
  };
  if (immediate.kind == ImmediateKind::kPutSignal) return take_put_signal(stream, immediate);
  if (immediate.kind == ImmediateKind::kRecord) return take_record(peer, immediate);
  // The weak signal first: a strong one that is applied because of this write covers it.
  if (immediate.kind == ImmediateKind::kPutPart &&
      !stream.receive.parts.add_write(immediate.payload, apply)) {
    return false;
  }
  if (immediate.kind == ImmediateKind::kPartRecord && !take_part_record(peer, immediate)) {
    return false;
  }
  if (!stream.receive.epochs.add_write(immediate.epoch)) return false;
  apply_epochs(stream);
  return true;
}

bool NetContext::take_put_signal(Stream& stream, const Immediate& immediate) {
  if (!shared_.is_slot(immediate.payload)) return false;
  shared_.add_signal(immediate.payload, 1);
  if (shared_.is_ordered()) return true;
  if (!stream.receive.epochs.add_write(immediate.epoch)) return false;
  apply_epochs(stream);
  return true;
}

bool NetContext::is_sound(const SignalRecord& record) const {
  return shared_.is_slot(record.slot) && record.wants_ack <= 1;
}

bool NetContext::take_record(int peer, const Immediate& immediate) {
  Stream& stream = stream_of(peer);
  ReceiveState& receive = stream.receive;
  const WideNumber epoch =
      widen(immediate.payload, kNumPayloads, receive.epochs.head(), kNumEpochIds);
  if (!epoch.is_open || epoch_bits(epoch.number) != immediate.epoch) return false;
  const auto record =
      shared_.load_cell<SignalRecord>(shared_.layout.record_in(index_, peer, epoch.number));
  const bool is_flush = record.slot == kNoSlot && record.wants_ack == 1;
  if (record.number != epoch.number || !(is_flush || is_sound(record))) return false;
  if (shared_.is_ordered() && (record.num_writes != 0 || epoch.number != receive.epochs.head())) {
    return false;
  }
  if (!receive.epochs.add_record(record)) return false;
  if (record.wants_ack == 1) {
    receive.has_ack_request = true;
    receive.ack_request = epoch.number;
  }
  apply_epochs(stream);
  return true;
}

bool NetContext::take_part_record(int peer, const Immediate& immediate) {
  PartReceiver& parts = stream_of(peer).receive.parts;
  const WideNumber number = widen(immediate.payload, kNumPayloads, parts.head(),
                                  static_cast<std::uint64_t>(shared_.config.part_ring / 2));
  if (!number.is_open) return false;
  const auto record =
      shared_.load_cell<SignalRecord>(shared_.layout.part_in(index_, peer, number.number));
  if (record.number != number.number || !is_sound(record) || record.wants_ack != 0) return false;
  return parts.add_record(
      record, [this](std::uint32_t slot, std::uint64_t add) { shared_.add_signal(slot, add); });
}

void NetContext::apply_epochs(Stream& stream) {
  stream.receive.epochs.apply_complete([this](std::uint32_t slot, std::uint64_t add) {
    if (slot != kNoSlot) shared_.add_signal(slot, add);
  });
}

void NetContext::note_ack_due(int peer) {
  ReceiveState& receive = stream_of(peer).receive;
  const NetConfig& config = shared_.config;
  const bool is_asked_for =
      receive.has_ack_request &&
      static_cast<std::int64_t>(receive.epochs.head() - receive.ack_request) > 0;
  const bool is_due = is_asked_for ||
                      is_half(receive.arrivals - receive.acked.arrivals,
                              static_cast<std::uint64_t>(config.arrival_window)) ||
                      is_half(receive.epochs.head() - receive.acked.epoch,
                              static_cast<std::uint64_t>(config.epoch_ring / 2)) ||
                      is_half(receive.parts.head() - receive.acked.part,
                              static_cast<std::uint64_t>(config.part_ring / 2));
  if (!is_due) return;
  if (is_asked_for) receive.has_ack_request = false;
  receive.is_ack_due = true;
  with_control_.insert(peer);
}

bool NetContext::take_ack(int peer, std::uint32_t cell) {
  Stream& stream = stream_of(peer);
  const auto ack = shared_.load_cell<AckCell>(shared_.layout.ack_in(index_, peer, cell));
  if ((stream.control.acks_to_confirm >> cell & 1U) != 0) return false;
  SendState& send = stream.send;
  for (const AckVerdict verdict :
       {send.arrivals.acknowledge(ack.arrivals), send.epochs.acknowledge(ack.epoch),
        send.parts.acknowledge(ack.part)}) {
    if (verdict == AckVerdict::kForged) return false;
  }
  stream.control.acks_to_confirm |= 1U << cell;
  with_control_.insert(peer);
  return true;
}

}  // namespace ep::fabric
