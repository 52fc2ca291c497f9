// SPDX-License-Identifier: Apache-2.0
// What ranks tell each other besides puts: greetings, acknowledgements, pings, messages.
#include "base/hash.h"
#include "fabric/net/net_context.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

namespace ep::fabric {
namespace {

constexpr std::int64_t kNsPerMs = 1'000'000;
/// Nobody looked for so many heartbeats: the silence of peers meanwhile says nothing.
constexpr std::int64_t kMaxMissedChecks = 8;

/// Says who greets, as well as ten bits can.
std::uint32_t hello_argument(int rank, std::uint64_t incarnation) {
  const std::uint32_t hash = base::fnv1a_32(
      incarnation, base::fnv1a_32(static_cast<std::uint64_t>(rank), base::kFnv32Basis));
  return hash % kNumControlArguments;
}

}  // namespace

void NetContext::send_hellos() {
  for (int peer = 0; peer < shared_.num_ranks(); ++peer) {
    if (peer == shared_.rank()) continue;
    stream_of(peer).control.hello_due = true;
    with_control_.insert(peer);
  }
}

std::optional<int> NetContext::missing_hello() const {
  for (int peer = 0; peer < shared_.num_ranks(); ++peer) {
    const Stream& it = stream(peer);
    if (peer != shared_.rank() && (!it.receive.has_hello || it.control.hello_due)) return peer;
  }
  return std::nullopt;
}

bool NetContext::take_control(int peer, std::uint16_t payload) {
  const std::optional<Control> control = decode_control(payload);
  if (!control.has_value()) return false;
  ControlState& state = stream_of(peer).control;
  switch (control->kind) {
    case ControlKind::kHello:
      return take_hello(peer, control->argument);
    case ControlKind::kAckSeen:
      return take_ack_seen(peer, control->argument);
    case ControlKind::kPing:
      state.pong_due = true;
      with_control_.insert(peer);
      return true;
    case ControlKind::kPong:
      return std::exchange(state.is_ping_open, false);
    case ControlKind::kMessage:
      return take_message(peer, control->argument);
    case ControlKind::kMessageSeen:
      return take_message_seen(peer, control->argument);
  }
  return false;
}

bool NetContext::take_hello(int peer, std::uint32_t argument) {
  ReceiveState& receive = stream_of(peer).receive;
  return argument == hello_argument(peer, shared_.incarnation_of(peer)) &&
         !std::exchange(receive.has_hello, true);
}

bool NetContext::take_ack_seen(int peer, std::uint32_t cell) {
  ReceiveState& receive = stream_of(peer).receive;
  if (cell >= kNumAckCells || !std::exchange(receive.is_ack_unseen[cell], false)) return false;
  if (receive.is_ack_due) with_control_.insert(peer);
  return true;
}

bool NetContext::take_message(int peer, std::uint32_t cell) {
  if (index_ != 0 || cell >= kNumMessageCells) return false;
  Stream& stream = stream_of(peer);
  const auto message = shared_.load_cell<MessageCell>(shared_.layout.message_in(peer, cell));
  if (message.incarnation != shared_.incarnation_of(peer)) {
    ++stream.counters.stale;
    return true;
  }
  const bool is_unconfirmed = (stream.control.messages_to_confirm >> cell & 1U) != 0;
  if (is_unconfirmed || message.num_bytes > kMaxMessageBytes) return false;
  stream.control.messages_to_confirm |= 1U << cell;
  with_control_.insert(peer);
  if (shared_.config.on_message) {
    shared_.config.on_message(
        peer, std::span(message.bytes).first(static_cast<std::size_t>(message.num_bytes)));
  }
  return true;
}

bool NetContext::take_message_seen(int peer, std::uint32_t cell) {
  ControlState& control = stream_of(peer).control;
  if (index_ != 0 || cell >= kNumMessageCells) return false;
  if ((control.messages_unseen >> cell & 1U) == 0) return false;
  control.messages_unseen &= ~(1U << cell);
  --messages_[cell].num_unseen;
  return true;
}

/// All that is due to the peer, as far as the network has room.
void NetContext::send_control(int peer) {
  if (shared_.peers.is_dead(peer)) {
    forget_messages(peer);
    with_control_.erase(peer);
    return;
  }
  ControlState& control = stream_of(peer).control;
  const auto post_one = [&](bool& is_due, ControlKind kind, std::uint32_t argument) {
    if (is_due && !post_control(peer, kind, argument)) return false;
    is_due = false;
    return true;
  };
  const bool is_done = post_one(control.hello_due, ControlKind::kHello,
                                hello_argument(shared_.rank(), shared_.incarnation())) &&
                       post_one(control.pong_due, ControlKind::kPong, 0) &&
                       post_one(control.ping_due, ControlKind::kPing, 0) &&
                       post_cells(peer, ControlKind::kAckSeen, control.acks_to_confirm) &&
                       post_cells(peer, ControlKind::kMessageSeen, control.messages_to_confirm) &&
                       post_ack(peer) && post_messages(peer);
  if (is_done) with_control_.erase(peer);
}

bool NetContext::post_control(int peer, ControlKind kind, std::uint32_t argument) {
  if (num_outstanding_ >= shared_.transport->traits().max_outstanding) return false;
  const WriteOp write{
      .peer = peer,
      .context = index_,
      .src = {.window = kScratchWindow},
      .dst = {.window = kScratchWindow},
      .immediate = bits(ImmediateKind::kControl, 0, encode(Control{kind, argument})),
      .cookie = cookie(CookieKind::kBare, peer, 0)};
  return post(write) == Posted::kYes;
}

bool NetContext::post_cells(int peer, ControlKind kind, std::uint32_t& mask) {
  while (mask != 0) {
    const auto cell = static_cast<std::uint32_t>(std::countr_zero(mask));
    if (!post_control(peer, kind, cell)) return false;
    mask &= mask - 1;
  }
  return true;
}

/// True also where all cells are under way: what tells that one was read brings the next turn.
bool NetContext::post_ack(int peer) {
  ReceiveState& receive = stream_of(peer).receive;
  if (!receive.is_ack_due) return true;
  std::uint32_t cell = 0;
  while (cell < kNumAckCells && (receive.is_ack_unseen[cell] || receive.is_ack_source_busy[cell])) {
    ++cell;
  }
  if (cell == kNumAckCells) return true;
  if (num_outstanding_ >= shared_.transport->traits().max_outstanding) return false;
  const AckCell ack{.incarnation = shared_.incarnation(),
                    .arrivals = receive.arrivals,
                    .epoch = receive.epochs.head(),
                    .part = receive.parts.head()};
  const std::int64_t source = shared_.layout.ack_out(index_, peer, cell);
  shared_.store_cell(source, ack);
  const WriteOp write{.peer = peer,
                      .context = index_,
                      .src = {.window = kScratchWindow, .offset = source},
                      .dst = {.window = kScratchWindow,
                              .offset = shared_.layout.ack_in(index_, shared_.rank(), cell)},
                      .bytes = sizeof(AckCell),
                      .immediate = bits(ImmediateKind::kAck, 0, cell),
                      .cookie = cookie(CookieKind::kAck, peer, cell)};
  if (post(write) != Posted::kYes) return false;
  receive.is_ack_unseen[cell] = true;
  receive.is_ack_source_busy[cell] = true;
  receive.acked = ack;
  receive.is_ack_due = false;
  return true;
}

bool NetContext::broadcast(std::span<const std::byte> message) {
  std::uint32_t cell = 0;
  while (cell < kNumMessageCells && !messages_[cell].is_free()) ++cell;
  if (cell == kNumMessageCells) return false;
  MessageCell content{.incarnation = shared_.incarnation(), .num_bytes = message.size()};
  std::copy(message.begin(), message.end(), content.bytes);
  shared_.store_cell(shared_.layout.message_out(cell), content);
  for (int peer = 0; peer < shared_.num_ranks(); ++peer) {
    if (peer == shared_.rank() || shared_.peers.is_dead(peer)) continue;
    stream_of(peer).control.messages_due |= 1U << cell;
    stream_of(peer).control.messages_unseen |= 1U << cell;
    ++messages_[cell].num_unseen;
    with_control_.insert(peer);
    send_control(peer);
  }
  return true;
}

bool NetContext::has_open_messages() const {
  return std::any_of(messages_.begin(), messages_.end(),
                     [](const MessageSource& source) { return source.num_unseen > 0; });
}

bool NetContext::post_messages(int peer) {
  std::uint32_t& due = stream_of(peer).control.messages_due;
  while (due != 0) {
    if (num_outstanding_ >= shared_.transport->traits().max_outstanding) return false;
    const auto cell = static_cast<std::uint32_t>(std::countr_zero(due));
    const WriteOp write{
        .peer = peer,
        .context = index_,
        .src = {.window = kScratchWindow, .offset = shared_.layout.message_out(cell)},
        .dst = {.window = kScratchWindow,
                .offset = shared_.layout.message_in(shared_.rank(), cell)},
        .bytes = sizeof(MessageCell),
        .immediate = bits(ImmediateKind::kControl, 0, encode(Control{ControlKind::kMessage, cell})),
        .cookie = cookie(CookieKind::kMessage, peer, cell)};
    if (post(write) != Posted::kYes) return false;
    ++messages_[cell].num_busy;
    due &= due - 1;
  }
  return true;
}

/// A dead peer reads nothing more.
void NetContext::forget_messages(int peer) {
  ControlState& control = stream_of(peer).control;
  for (std::uint32_t left = control.messages_unseen; left != 0; left &= left - 1) {
    --messages_[static_cast<std::size_t>(std::countr_zero(left))].num_unseen;
  }
  control.messages_unseen = 0;
  control.messages_due = 0;
}

void NetContext::check_liveness(std::int64_t now_ns) {
  const std::int64_t heartbeat_ns = shared_.config.heartbeat.count() * kNsPerMs;
  const std::int64_t gap_ns = now_ns - last_check_ns_;
  if (gap_ns < heartbeat_ns) return;
  const bool was_away = gap_ns > kMaxMissedChecks * heartbeat_ns;
  last_check_ns_ = now_ns;
  for (int peer = 0; peer < shared_.num_ranks(); ++peer) {
    if (!shared_.peers.is_watched(peer) || shared_.peers.is_dead(peer)) continue;
    if (was_away) stream_of(peer).control.ping_sent_ns = now_ns;
    check_peer(peer, now_ns);
  }
}

void NetContext::check_peer(int peer, std::int64_t now_ns) {
  ControlState& control = stream_of(peer).control;
  const NetConfig& config = shared_.config;
  const std::int64_t heard_ns = shared_.peers.last_heard_ns(peer);
  if (!control.is_ping_open) {
    if (now_ns - heard_ns < config.heartbeat.count() * kNsPerMs) return;
    control.is_ping_open = true;
    control.ping_due = true;
    control.ping_sent_ns = now_ns;
    with_control_.insert(peer);
    return;
  }
  const std::int64_t silent_ms = (now_ns - std::max(heard_ns, control.ping_sent_ns)) / kNsPerMs;
  if (silent_ms >= config.dead_after.count()) {
    shared_.peers.kill(
        peer, Status(Errc::kPeerTimeout, "rank " + std::to_string(peer) + " has not answered for " +
                                             std::to_string(silent_ms) + " ms (at most " +
                                             std::to_string(config.dead_after.count()) + " ms)"));
    with_ops_.insert(peer);
    with_control_.insert(peer);
  } else if (silent_ms >= config.suspect_after.count()) {
    shared_.peers.set_suspected(peer, true);
  }
}

}  // namespace ep::fabric
