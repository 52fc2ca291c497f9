// SPDX-License-Identifier: Apache-2.0
// Set-up of a context, its lock, and what callers ask of it.
#include "fabric/net/net_context.h"

#include "primitives/relax.h"

namespace ep::fabric {
namespace {

std::size_t times(int a, int b) {
  return static_cast<std::size_t>(a) * static_cast<std::size_t>(b);
}

template <class T>
std::span<T> part_of(std::vector<T>& all, std::size_t index, int count) {
  const auto size = static_cast<std::size_t>(count);
  return std::span(all).subspan(index * size, size);
}

template <class T>
std::int64_t bytes_of(const std::vector<T>& all) {
  return static_cast<std::int64_t>(all.capacity() * sizeof(T));
}

void count(NetCounters& counters, const PendingOp& op) {
  const auto bytes = static_cast<std::uint64_t>(op.bytes);
  if (op.kind == OpKind::kGet) {
    ++counters.gets;
    counters.get_bytes += bytes;
  } else if (op.kind == OpKind::kPut) {
    if (op.bytes > 0) ++counters.puts;
    counters.put_bytes += bytes;
    if (op.form != SignalForm::kNone) ++counters.signals;
  }
}

}  // namespace

NetContext::NetContext(NetShared& shared, int index)
    : shared_(shared),
      index_(index),
      now_ns_(shared.config.clock_ns()),
      last_check_ns_(now_ns_),
      streams_(static_cast<std::size_t>(shared.num_ranks())),
      ops_(times(shared.num_ranks(), shared.config.window_ops)),
      open_epochs_(times(shared.num_ranks(), shared.config.epoch_ring)),
      open_parts_(times(shared.num_ranks(), shared.config.part_ring)),
      busy_cells_(times(shared.num_ranks(), shared.config.epoch_ring + shared.config.part_ring)),
      with_ops_(shared.num_ranks()),
      with_control_(shared.num_ranks()) {
  for (std::size_t peer = 0; peer < streams_.size(); ++peer) set_up(streams_[peer], peer);
}

void NetContext::set_up(Stream& stream, std::size_t peer) {
  const NetConfig& config = shared_.config;
  const std::uint64_t first = config.first_number;
  // Half of a ring: a number that is acknowledged late never meets the next one in its cell.
  const auto epoch_window = static_cast<std::uint64_t>(config.epoch_ring / 2);
  const auto part_window = static_cast<std::uint64_t>(config.part_ring / 2);
  const auto busy = part_of(busy_cells_, peer, config.epoch_ring + config.part_ring);
  stream.send.ops.ring = part_of(ops_, peer, config.window_ops);
  stream.send.ops.head = stream.send.ops.next = stream.send.ops.tail = first;
  stream.send.arrivals = {first, static_cast<std::uint64_t>(config.arrival_window)};
  stream.send.epochs = {first, epoch_window};
  stream.send.parts = {first, part_window};
  stream.send.busy_records = busy.first(static_cast<std::size_t>(config.epoch_ring));
  stream.send.busy_parts = busy.last(static_cast<std::size_t>(config.part_ring));
  stream.send.flush_epoch = first;
  stream.receive.epochs = {first, epoch_window, part_of(open_epochs_, peer, config.epoch_ring)};
  stream.receive.parts = {first, part_window, part_of(open_parts_, peer, config.part_ring)};
  stream.receive.arrivals = first;
  stream.receive.acked = {.arrivals = first, .epoch = first, .part = first};
}

std::int64_t NetContext::memory_bytes() const {
  return static_cast<std::int64_t>(sizeof(NetContext)) + bytes_of(streams_) + bytes_of(ops_) +
         bytes_of(open_epochs_) + bytes_of(open_parts_) + bytes_of(busy_cells_) +
         with_ops_.memory_bytes() + with_control_.memory_bytes();
}

std::int64_t NetContext::planned_bytes(const NetConfig& config, int num_ranks) {
  const int rings = config.epoch_ring + config.part_ring;
  const std::size_t per_peer =
      sizeof(Stream) + static_cast<std::size_t>(config.window_ops) * sizeof(PendingOp) +
      static_cast<std::size_t>(rings) * (sizeof(OpenSignal) + sizeof(std::uint8_t));
  return static_cast<std::int64_t>(sizeof(NetContext) +
                                   static_cast<std::size_t>(num_ranks) * per_peer) +
         2 * PeerSet::planned_bytes(num_ranks);
}

void NetContext::lock() {
  for (int polls = 1; !try_lock(); ++polls) primitives::relax(polls);
}

SignalForm NetContext::form_of(const primitives::NetSignal& signal, std::int64_t bytes) const {
  using primitives::SignalStrength;
  if (signal.strength == SignalStrength::kNone) return SignalForm::kNone;
  const bool fits = signal.add == 1 && signal.slot < kNumPayloads;
  if (shared_.is_ordered()) return fits ? SignalForm::kImmediate : SignalForm::kRecord;
  if (signal.strength == SignalStrength::kStrong) return SignalForm::kRecord;
  const bool is_one_write = bytes <= shared_.transport->traits().max_write_bytes;
  return fits && is_one_write ? SignalForm::kImmediate : SignalForm::kPartRecord;
}

bool NetContext::enqueue(int peer, PendingOp op, std::optional<std::uint64_t> value) {
  SendState& send = stream_of(peer).send;
  OpQueue& ops = send.ops;
  const bool is_too_much =
      ops.open_bytes > 0 && ops.open_bytes + op.bytes > shared_.config.window_bytes;
  if (ops.is_full() || is_too_much || shared_.peers.is_dead(peer)) return false;
  if (value.has_value()) {
    const std::int64_t cell = shared_.layout.value_out(index_, peer, ops.tail);
    shared_.store_cell(cell, *value);
    op.src = {.window = kScratchWindow, .offset = cell};
  }
  op.queued_ns = now_ns_;
  ops.at(ops.tail++) = op;
  ops.open_bytes += op.bytes;
  shared_.peers.watch(peer);
  count(stream_of(peer).counters, op);
  if (op.kind == OpKind::kPut) {
    send.is_dirty = true;
    // Relaxed: a caller that asks is_flushed counts its own puts, or was told of them.
    num_open_puts_.fetch_add(1, std::memory_order_relaxed);
  }
  with_ops_.insert(peer);
  // Behind others it waits for its turn.
  if (ops.tail - ops.next == 1) pump(peer);
  return true;
}

bool NetContext::enqueue_flushes() {
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const int peer = static_cast<int>(i);
    SendState& send = streams_[i].send;
    if (!send.is_dirty || shared_.peers.is_dead(peer)) continue;
    ++send.num_flushes_queued;  // first: it may be posted at once
    if (!enqueue(peer, {.kind = OpKind::kFlush, .form = SignalForm::kRecord, .slot = kNoSlot})) {
      --send.num_flushes_queued;
      return false;
    }
    send.is_dirty = false;
  }
  return true;
}

bool NetContext::is_remote_flushed() const {
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const SendState& send = streams_[i].send;
    if (shared_.peers.is_dead(static_cast<int>(i))) continue;
    if (send.num_flushes_queued > 0 || !send.epochs.has_settled(send.flush_epoch)) return false;
  }
  return true;
}

int NetContext::drive(Driver driver) {
  const int count = shared_.transport->poll(index_, events_);
  now_ns_ = shared_.config.clock_ns();
  for (int i = 0; i < count; ++i) handle(events_[static_cast<std::size_t>(i)]);
  pump_all();
  with_control_.for_each([this](int peer) { send_control(peer); });
  const bool is_drained = count < static_cast<int>(kEventsPerPoll);
  if (index_ == 0 && driver == Driver::kWaiter && is_drained) check_liveness(now_ns_);
  return count;
}

namespace {

constexpr std::int64_t kNsPerMs = 1'000'000;

void append(std::string& text, const char* name, std::uint64_t value) {
  text += std::string(text.empty() ? "" : ", ") + name + " " + std::to_string(value);
}

}  // namespace

std::string NetContext::describe(int peer) const {
  const SendState& send = stream(peer).send;
  const ReceiveState& receive = stream(peer).receive;
  std::string text;
  if (send.ops.head != send.ops.tail) {
    append(text, "operations", send.ops.tail - send.ops.head);
    append(text, "of them not sent", send.ops.tail - send.ops.next);
    const std::int64_t age_ns = shared_.config.clock_ns() - send.ops.at(send.ops.head).queued_ns;
    append(text, "ms since the oldest", static_cast<std::uint64_t>(age_ns / kNsPerMs));
  }
  if (send.arrivals.num_open() > 0) {
    append(text, "arrivals without acknowledgement", send.arrivals.num_open());
    append(text, "of at most", static_cast<std::uint64_t>(shared_.config.arrival_window));
    append(text, "open epoch", send.epochs.next());
    append(text, "acknowledged epoch", send.epochs.acked());
    append(text, "weak records without acknowledgement", send.parts.num_open());
  }
  const OpenSignal& head = receive.epochs.at_head();
  if (head.has_record || head.num_arrived > 0) {
    append(text, "incoming epoch", receive.epochs.head());
    append(text, "writes of it here", head.num_arrived);
    text += head.has_record ? " of " + std::to_string(head.num_writes) : " and no record";
  }
  return text.empty() ? text : "context " + std::to_string(index_) + ": " + text;
}

}  // namespace ep::fabric
