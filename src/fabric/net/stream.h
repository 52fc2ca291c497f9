// SPDX-License-Identifier: Apache-2.0
// State of one context with one peer.
#pragma once

#include "fabric/net/ack_window.h"
#include "fabric/net/net_config.h"
#include "fabric/net/signal_receiver.h"
#include "fabric/net/transport.h"
#include "fabric/net/wire_cells.h"

#include <array>
#include <cstdint>
#include <span>

namespace ep::fabric {

enum class OpKind : std::uint8_t { kPut, kGet, kFlush };

/// How the signal of a put travels.
enum class SignalForm : std::uint8_t {
  kNone,
  kImmediate,   ///< with its last write
  kPartRecord,  ///< weak: a record that counts the writes of its put
  kRecord,      ///< strong: a record that counts the writes of its epoch
};

/// An operation of the caller that is not over. Places carry the transport's window numbers.
struct PendingOp {
  OpKind kind = OpKind::kPut;
  SignalForm form = SignalForm::kNone;
  bool has_part = false;   ///< `part` was given out
  bool is_posted = false;  ///< all of it was given to the network
  std::uint32_t slot = 0;
  std::uint32_t counter = 0;
  std::uint32_t num_posted = 0;  ///< writes or reads
  std::uint32_t num_open = 0;    ///< of those, not completed
  WindowPlace dst{};
  WindowPlace src{};
  std::int64_t bytes = 0;
  std::int64_t posted_bytes = 0;
  std::uint64_t add = 0;
  std::uint64_t part = 0;
  std::int64_t queued_ns = 0;
};

/// Operations from head to tail are not over; from `next` on they wait for the network.
struct OpQueue {
  std::span<PendingOp> ring{};
  std::uint64_t head = 0;
  std::uint64_t next = 0;
  std::uint64_t tail = 0;
  std::int64_t open_bytes = 0;

  PendingOp& at(std::uint64_t position) { return ring[position & (ring.size() - 1)]; }
  const PendingOp& at(std::uint64_t position) const { return ring[position & (ring.size() - 1)]; }
  bool is_full() const { return tail - head == ring.size(); }
  bool has_waiting() const { return next != tail; }
};

struct SendState {
  OpQueue ops{};
  AckWindow arrivals{};  ///< writes with an immediate
  AckWindow epochs{};    ///< strong records; next() is the open epoch
  AckWindow parts{};     ///< weak records
  std::uint64_t epoch_writes = 0;
  /// Whether the network may still read the cell, by number modulo ring.
  std::span<std::uint8_t> busy_records{};
  std::span<std::uint8_t> busy_parts{};
  bool is_dirty = false;  ///< puts that no flush covers
  int num_flushes_queued = 0;
  std::uint64_t flush_epoch = 0;  ///< all is flushed once the epochs below are acknowledged
};

struct ReceiveState {
  EpochReceiver epochs{};
  PartReceiver parts{};
  std::uint64_t arrivals = 0;
  AckCell acked{};  ///< what the last acknowledgement said
  bool has_ack_request = false;
  std::uint64_t ack_request = 0;  ///< asked for once this epoch is over
  bool is_ack_due = false;
  bool has_hello = false;
  std::array<bool, kNumAckCells> is_ack_unseen{};
  std::array<bool, kNumAckCells> is_ack_source_busy{};
};

/// Immediates that are to be sent, or to come; masks are of cells.
struct ControlState {
  bool hello_due = false;
  bool ping_due = false;
  bool pong_due = false;
  bool is_ping_open = false;
  std::uint32_t acks_to_confirm = 0;
  std::uint32_t messages_due = 0;
  std::uint32_t messages_unseen = 0;
  std::uint32_t messages_to_confirm = 0;
  std::int64_t ping_sent_ns = 0;
};

struct Stream {
  SendState send{};
  ReceiveState receive{};
  ControlState control{};
  NetCounters counters{};
};

}  // namespace ep::fabric
