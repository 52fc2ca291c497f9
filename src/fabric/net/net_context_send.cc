// SPDX-License-Identifier: Apache-2.0
// From the queue of a stream to the network: cuts puts, gives out credits, writes records.
#include "base/check.h"
#include "fabric/net/net_context.h"

#include <algorithm>
#include <string>
#include <utility>

namespace ep::fabric {
namespace {

/// Room in the network's window that puts leave to acknowledgements and control, without which
/// nobody's puts go on.
constexpr int kMaxControlReserve = 8;
constexpr int kControlShare = 4;

constexpr int kCookieKindShift = 56;
constexpr int kCookiePeerShift = 32;

}  // namespace

std::uint64_t NetContext::cookie(CookieKind kind, int peer, std::uint64_t number) {
  return static_cast<std::uint64_t>(kind) << kCookieKindShift |
         static_cast<std::uint64_t>(peer) << kCookiePeerShift | (number & 0xffffffffU);
}

std::uint32_t NetContext::bits(ImmediateKind kind,
                               std::uint64_t epoch,
                               std::uint64_t payload) const {
  return encode(Immediate{.kind = kind,
                          .context = index_,
                          .epoch = epoch_bits(epoch),
                          .payload = payload_bits(payload)});
}

bool NetContext::has_quota() const {
  const int most = shared_.transport->traits().max_outstanding;
  return num_outstanding_ < most - std::min(kMaxControlReserve, most / kControlShare);
}

/// Books what the network took; what it will never take ends the peer.
Posted NetContext::account(int peer, Posted posted) {
  if (posted == Posted::kYes) {
    ++num_outstanding_;
    ++stream_of(peer).counters.messages;
  } else if (posted == Posted::kFailed) {
    shared_.peers.kill(peer, shared_.transport->failure(index_));
    with_ops_.insert(peer);
    with_control_.insert(peer);
  }
  return posted;
}

Posted NetContext::post(const WriteOp& op) {
  return account(op.peer, shared_.transport->write(op));
}

void NetContext::pump_all() {
  with_ops_.for_each([this](int peer) { pump(peer); });
}

void NetContext::pump(int peer) {
  OpQueue& ops = stream_of(peer).send.ops;
  for (int posts = 0; posts < kPostsPerTurn && ops.has_waiting(); ++posts) {
    if (shared_.peers.is_dead(peer)) return drop_waiting(peer);
    PendingOp& op = ops.at(ops.next);
    const Step step = post_next(peer, op, ops.next);
    if (step == Step::kBlocked) return;
    if (step == Step::kMore) continue;
    op.is_posted = true;
    ++ops.next;
    if (op.num_open == 0) finish_op(stream_of(peer), op);
  }
  if (!ops.has_waiting()) with_ops_.erase(peer);
}

/// The peer is dead: what was not posted never will be.
void NetContext::drop_waiting(int peer) {
  Stream& stream = stream_of(peer);
  OpQueue& ops = stream.send.ops;
  while (ops.has_waiting()) {
    PendingOp& op = ops.at(ops.next++);
    op.is_posted = true;
    if (op.kind == OpKind::kFlush) --stream.send.num_flushes_queued;
    if (op.num_open == 0) finish_op(stream, op);
  }
  with_ops_.erase(peer);
}

NetContext::Step NetContext::post_next(int peer, PendingOp& op, std::uint64_t position) {
  if (!has_quota()) return Step::kBlocked;
  if (op.kind == OpKind::kGet) return post_get(peer, op, position);
  const bool is_bare_signal = op.form == SignalForm::kImmediate && op.num_posted == 0;
  if (op.posted_bytes < op.bytes || is_bare_signal) return post_body(peer, op, position);
  if (op.form == SignalForm::kRecord) return post_record(peer, op);
  if (op.form == SignalForm::kPartRecord) return post_part_record(peer, op);
  return Step::kOpIsPosted;
}

std::optional<std::uint32_t> NetContext::body_immediate(const Stream& stream,
                                                        const PendingOp& op,
                                                        bool is_last) const {
  const std::uint64_t epoch = stream.send.epochs.next();
  if (op.form == SignalForm::kImmediate && is_last) {
    return bits(ImmediateKind::kPutSignal, epoch, op.slot);
  }
  if (shared_.is_ordered()) return std::nullopt;
  if (op.form == SignalForm::kPartRecord) return bits(ImmediateKind::kPutPart, epoch, op.part);
  return bits(ImmediateKind::kPut, epoch, 0);
}

/// Whether a record can follow `credits` other writes at once.
bool NetContext::may_post_record(const SendState& send, std::uint64_t credits) const {
  const std::uint64_t limit = static_cast<std::uint64_t>(shared_.config.arrival_window);
  const std::uint64_t cell = send.epochs.next() & (send.busy_records.size() - 1);
  return send.epochs.has_room() && send.busy_records[cell] == 0 &&
         send.arrivals.num_open() + credits < limit;
}

/// One write of a put.
NetContext::Step NetContext::post_body(int peer, PendingOp& op, std::uint64_t position) {
  Stream& stream = stream_of(peer);
  SendState& send = stream.send;
  const std::int64_t bytes =
      std::min(op.bytes - op.posted_bytes, shared_.transport->traits().max_write_bytes);
  const bool is_last = op.posted_bytes + bytes == op.bytes;
  if (op.form == SignalForm::kPartRecord && !op.has_part) {
    if (!send.parts.has_room()) return Step::kBlocked;
    op.part = send.parts.take();
    op.has_part = true;
  }
  const std::optional<std::uint32_t> immediate = body_immediate(stream, op, is_last);
  if (immediate.has_value() && !send.arrivals.has_room()) return Step::kBlocked;
  const WriteOp write{.peer = peer,
                      .context = index_,
                      .src = {.window = op.src.window, .offset = op.src.offset + op.posted_bytes},
                      .dst = {.window = op.dst.window, .offset = op.dst.offset + op.posted_bytes},
                      .bytes = bytes,
                      .immediate = immediate,
                      .cookie = cookie(CookieKind::kOp, peer, position),
                      .has_more = is_last && op.form == SignalForm::kRecord && has_quota() &&
                                  may_post_record(send, immediate.has_value() ? 1 : 0)};
  if (post(write) != Posted::kYes) return Step::kBlocked;
  op.posted_bytes += bytes;
  ++op.num_posted;
  ++op.num_open;
  if (immediate.has_value()) {
    send.arrivals.take();
    ++send.epoch_writes;
  }
  const bool needs_record = op.form == SignalForm::kRecord || op.form == SignalForm::kPartRecord;
  return is_last && !needs_record ? Step::kOpIsPosted : Step::kMore;
}

NetContext::Step NetContext::post_get(int peer, PendingOp& op, std::uint64_t position) {
  const std::int64_t bytes =
      std::min(op.bytes - op.posted_bytes, shared_.transport->traits().max_write_bytes);
  const ReadOp read{.peer = peer,
                    .context = index_,
                    .dst = {.window = op.dst.window, .offset = op.dst.offset + op.posted_bytes},
                    .src = {.window = op.src.window, .offset = op.src.offset + op.posted_bytes},
                    .bytes = bytes,
                    .cookie = cookie(CookieKind::kOp, peer, position)};
  if (account(peer, shared_.transport->read(read)) != Posted::kYes) return Step::kBlocked;
  op.posted_bytes += bytes;
  ++op.num_posted;
  ++op.num_open;
  return op.posted_bytes == op.bytes ? Step::kOpIsPosted : Step::kMore;
}

/// Closes the epoch.
NetContext::Step NetContext::post_record(int peer, PendingOp& op) {
  SendState& send = stream_of(peer).send;
  if (!may_post_record(send, 0)) return Step::kBlocked;
  const std::uint64_t epoch = send.epochs.next();
  const std::int64_t source = shared_.layout.record_out(index_, peer, epoch);
  shared_.store_cell(source,
                     SignalRecord{.incarnation = shared_.incarnation(),
                                  .number = epoch,
                                  .add = op.add,
                                  .num_writes = shared_.is_ordered() ? 0 : send.epoch_writes,
                                  .slot = op.slot,
                                  .wants_ack = op.kind == OpKind::kFlush ? 1U : 0U});
  const WriteOp write{.peer = peer,
                      .context = index_,
                      .src = {.window = kScratchWindow, .offset = source},
                      .dst = {.window = kScratchWindow,
                              .offset = shared_.layout.record_in(index_, shared_.rank(), epoch)},
                      .bytes = sizeof(SignalRecord),
                      .immediate = bits(ImmediateKind::kRecord, epoch, epoch),
                      .cookie = cookie(CookieKind::kRecord, peer, epoch)};
  if (post(write) != Posted::kYes) return Step::kBlocked;
  send.busy_records[epoch & (send.busy_records.size() - 1)] = 1;
  send.arrivals.take();
  send.epochs.take();
  send.epoch_writes = 0;
  if (op.kind == OpKind::kFlush) {
    --send.num_flushes_queued;
    send.flush_epoch = send.epochs.next();
  }
  return Step::kOpIsPosted;
}

/// Counts in the epoch, so that a strong signal covers the weak one.
NetContext::Step NetContext::post_part_record(int peer, PendingOp& op) {
  SendState& send = stream_of(peer).send;
  if (!op.has_part) {
    if (!send.parts.has_room()) return Step::kBlocked;
    op.part = send.parts.take();
    op.has_part = true;
  }
  std::uint8_t& is_busy = send.busy_parts[op.part & (send.busy_parts.size() - 1)];
  if (is_busy != 0 || !send.arrivals.has_room()) return Step::kBlocked;
  const std::int64_t source = shared_.layout.part_out(index_, peer, op.part);
  shared_.store_cell(source, SignalRecord{.incarnation = shared_.incarnation(),
                                          .number = op.part,
                                          .add = op.add,
                                          .num_writes = op.num_posted,
                                          .slot = op.slot});
  const WriteOp write{.peer = peer,
                      .context = index_,
                      .src = {.window = kScratchWindow, .offset = source},
                      .dst = {.window = kScratchWindow,
                              .offset = shared_.layout.part_in(index_, shared_.rank(), op.part)},
                      .bytes = sizeof(SignalRecord),
                      .immediate = bits(ImmediateKind::kPartRecord, send.epochs.next(), op.part),
                      .cookie = cookie(CookieKind::kPart, peer, op.part)};
  if (post(write) != Posted::kYes) return Step::kBlocked;
  is_busy = 1;
  send.arrivals.take();
  ++send.epoch_writes;
  return Step::kOpIsPosted;
}

/// All of it was posted and completed.
void NetContext::finish_op(Stream& stream, PendingOp& op) {
  OpQueue& ops = stream.send.ops;
  ops.open_bytes -= op.bytes;
  if (op.kind == OpKind::kPut) {
    // [sync:net-flushed] release: the network's reads of the source.
    num_open_puts_.fetch_sub(1, std::memory_order_release);
  } else if (op.kind == OpKind::kGet && op.posted_bytes == op.bytes) {
    shared_.add_counter(op.counter);
  }
  const auto is_over = [&ops](std::uint64_t position) {
    return ops.at(position).is_posted && ops.at(position).num_open == 0;
  };
  while (ops.head != ops.next && is_over(ops.head)) ++ops.head;
}

}  // namespace ep::fabric
