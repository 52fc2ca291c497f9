// SPDX-License-Identifier: Apache-2.0
// One context of the engine: queues, windows and acknowledgements of its streams. Whoever holds its
// lock drives it.
#pragma once

#include "fabric/net/immediate.h"
#include "fabric/net/net_shared.h"
#include "fabric/net/peer_set.h"
#include "fabric/net/stream.h"
#include "primitives/net.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ep::fabric {

/// How a lane that drives a context came to do so.
enum class Driver : std::uint8_t {
  kWaiter,   ///< waits for peers: their silence counts
  kService,  ///< only answers
};

class NetContext {
 public:
  NetContext(NetShared& shared, int index);

  /// Held for short: nobody waits or yields under it.
  bool try_lock() {
    // [sync:net-context] acquire: the state of the context.
    return !is_locked_.exchange(true, std::memory_order_acquire);
  }
  void lock();
  void unlock() {
    // [sync:net-context] release: the state of the context.
    is_locked_.store(false, std::memory_order_release);
  }

  // Under the lock.

  /// False where the windows are full or the peer is dead. `value`: what a put of a value brings.
  bool enqueue(int peer, PendingOp op, std::optional<std::uint64_t> value = std::nullopt);
  /// False where a queue is full: nothing was queued for that peer, and the call is to be repeated.
  bool enqueue_flushes();
  bool is_remote_flushed() const;
  /// Polls, handles, sends. Returns how many events came.
  int drive(Driver driver);
  void send_hellos();
  /// A rank that has not said hello.
  std::optional<int> missing_hello() const;
  /// Context 0 only. False where all cells are under way.
  bool broadcast(std::span<const std::byte> message);
  bool has_open_messages() const;
  const Stream& stream(int peer) const { return streams_[static_cast<std::size_t>(peer)]; }
  /// What is under way to and from the peer, in a line; empty if nothing is.
  std::string describe(int peer) const;

  // Without it.

  /// Whether the sources of all puts so far may be reused.
  bool is_flushed() const {
    // [sync:net-flushed] acquire: the network's reads of the sources are over.
    return num_open_puts_.load(std::memory_order_acquire) == 0;
  }
  SignalForm form_of(const primitives::NetSignal& signal, std::int64_t bytes) const;
  std::int64_t memory_bytes() const;
  static std::int64_t planned_bytes(const NetConfig& config, int num_ranks);

 private:
  static constexpr std::size_t kEventsPerPoll = 32;
  /// Writes of a stream before it is the next one's turn.
  static constexpr int kPostsPerTurn = 16;

  enum class Step : std::uint8_t { kMore, kOpIsPosted, kBlocked };

  /// What a cookie says; kBare: nothing depends on its completion.
  enum class CookieKind : std::uint8_t { kBare = 1, kOp, kRecord, kPart, kAck, kMessage };
  static std::uint64_t cookie(CookieKind kind, int peer, std::uint64_t number);

  /// Sources of messages, one per cell.
  struct MessageSource {
    int num_unseen = 0;
    int num_busy = 0;
    bool is_free() const { return num_unseen == 0 && num_busy == 0; }
    bool release() { return num_busy > 0 && num_busy-- > 0; }
  };

  Stream& stream_of(int peer) { return streams_[static_cast<std::size_t>(peer)]; }
  void set_up(Stream& stream, std::size_t peer);

  // net_context_send.cc
  void pump(int peer);
  void pump_all();
  Step post_next(int peer, PendingOp& op, std::uint64_t position);
  Step post_body(int peer, PendingOp& op, std::uint64_t position);
  Step post_get(int peer, PendingOp& op, std::uint64_t position);
  Step post_record(int peer, PendingOp& op);
  Step post_part_record(int peer, PendingOp& op);
  std::optional<std::uint32_t> body_immediate(const Stream& stream,
                                              const PendingOp& op,
                                              bool is_last) const;
  bool may_post_record(const SendState& send, std::uint64_t credits) const;
  bool has_room(std::uint64_t arrivals) const;
  Posted post(const WriteOp& op);
  Posted account(int peer, Posted posted);
  bool has_quota() const;
  void finish_op(Stream& stream, PendingOp& op);
  void drop_waiting(int peer);
  std::uint32_t bits(ImmediateKind kind, std::uint64_t epoch, std::uint64_t payload) const;

  // net_context_receive.cc
  void handle(const NetEvent& event);
  void complete(const NetEvent& event);
  bool complete_source(CookieKind kind, int peer, std::uint32_t number);
  bool complete_op(Stream& stream, std::uint32_t position);
  void arrive(int peer, std::uint32_t bits);
  /// These: false for what no rank sends.
  bool take(int peer, const Immediate& immediate);
  bool is_known_here(const Immediate& immediate) const;
  bool is_stale(int peer, const Immediate& immediate) const;
  bool take_credited(int peer, const Immediate& immediate);
  bool take_put_signal(Stream& stream, const Immediate& immediate);
  bool take_record(int peer, const Immediate& immediate);
  bool take_part_record(int peer, const Immediate& immediate);
  bool take_ack(int peer, std::uint32_t cell);
  bool is_sound(const SignalRecord& record) const;
  void apply_epochs(Stream& stream);
  void note_ack_due(int peer);

  // net_context_control.cc
  bool take_control(int peer, std::uint16_t payload);
  bool take_message(int peer, std::uint32_t cell);
  bool take_ack_seen(int peer, std::uint32_t cell);
  bool take_message_seen(int peer, std::uint32_t cell);
  bool take_hello(int peer, std::uint32_t argument);
  void send_control(int peer);
  bool post_control(int peer, ControlKind kind, std::uint32_t argument);
  bool post_cells(int peer, ControlKind kind, std::uint32_t& mask);
  bool post_ack(int peer);
  bool post_messages(int peer);
  void check_liveness(std::int64_t now_ns);
  void check_peer(int peer, std::int64_t now_ns);
  void forget_messages(int peer);

  NetShared& shared_;
  const int index_;
  std::atomic<bool> is_locked_{false};
  std::atomic<std::int64_t> num_open_puts_{0};
  int num_outstanding_ = 0;
  std::int64_t now_ns_ = 0;  ///< of the last drive
  std::int64_t last_check_ns_ = 0;
  std::vector<Stream> streams_;
  std::vector<PendingOp> ops_;
  std::vector<OpenSignal> open_epochs_;
  std::vector<OpenSignal> open_parts_;
  std::vector<std::uint8_t> busy_cells_;
  PeerSet with_ops_;      ///< whose queues wait for the network
  PeerSet with_control_;  ///< to whom something is due
  std::array<NetEvent, kEventsPerPoll> events_{};
  std::array<MessageSource, kNumMessageCells> messages_{};
};

}  // namespace ep::fabric
