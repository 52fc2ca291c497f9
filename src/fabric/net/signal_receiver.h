// SPDX-License-Identifier: Apache-2.0
// The receiver's half of signals on an unordered network. Strong ones are applied in the order of
// their epochs, each when all writes of its epoch have landed; weak ones when their own have.
#pragma once

#include "fabric/net/ack_window.h"
#include "fabric/net/immediate.h"
#include "fabric/net/wire_cells.h"

#include <cstdint>
#include <span>

namespace ep::fabric {

/// What to add where, once it may be seen.
struct OpenSignal {
  std::uint64_t add = 0;
  std::uint64_t num_writes = 0;
  std::uint64_t num_arrived = 0;
  std::uint32_t slot = kNoSlot;
  bool has_record = false;
  bool is_applied = false;  ///< weak: waits for those before it to be acknowledged

  bool is_complete() const { return has_record && num_arrived == num_writes; }
  bool is_overrun() const { return has_record && num_arrived > num_writes; }
  void take(const SignalRecord& record) {
    add = record.add;
    num_writes = record.num_writes;
    slot = record.slot;
    has_record = true;
  }
};

/// A ring of open numbers: `window` of them from head on. The cells belong to the caller; their
/// number is a power of two.
class SignalRing {
 public:
  SignalRing() = default;
  SignalRing(std::uint64_t first, std::uint64_t window, std::span<OpenSignal> cells)
      : head_(first), window_(window), cells_(cells) {}

  /// All below have been applied.
  std::uint64_t head() const { return head_; }
  std::uint64_t window() const { return window_; }
  OpenSignal& cell(std::uint64_t number) { return cells_[number & (cells_.size() - 1)]; }
  const OpenSignal& cell(std::uint64_t number) const {
    return cells_[number & (cells_.size() - 1)];
  }
  bool is_open(std::uint64_t number) const { return number - head_ < window_; }
  /// Ends the life of the head's cell.
  void advance() { cell(head_++) = {}; }

 private:
  std::uint64_t head_ = 0;
  std::uint64_t window_ = 0;
  std::span<OpenSignal> cells_{};
};

/// Strong signals of one stream. All calls: false for what no sender does.
class EpochReceiver {
 public:
  EpochReceiver() = default;
  EpochReceiver(std::uint64_t first, std::uint64_t window, std::span<OpenSignal> cells)
      : ring_(first, window, cells) {}

  std::uint64_t head() const { return ring_.head(); }
  const OpenSignal& at_head() const { return ring_.cell(ring_.head()); }

  /// A write of the epoch with these low bits has landed. The epoch after the last open signal has
  /// writes, too, hence one more than the window.
  bool add_write(std::uint8_t epoch) {
    const WideNumber wide = widen(epoch, kNumEpochIds, ring_.head(), ring_.window() + 1);
    if (!wide.is_open) return false;
    OpenSignal& cell = ring_.cell(wide.number);
    ++cell.num_arrived;
    return !cell.is_overrun();
  }

  bool add_record(const SignalRecord& record) {
    if (!ring_.is_open(record.number)) return false;
    OpenSignal& cell = ring_.cell(record.number);
    if (cell.has_record) return false;
    cell.take(record);
    return !cell.is_overrun();
  }

  /// Calls apply(slot, add) for every signal that may be seen now, in order.
  template <class Apply>
  void apply_complete(Apply apply) {
    while (at_head().is_complete()) {
      apply(at_head().slot, at_head().add);
      ring_.advance();
    }
  }

 private:
  SignalRing ring_;
};

/// Weak signals with a record of one stream.
class PartReceiver {
 public:
  PartReceiver() = default;
  PartReceiver(std::uint64_t first, std::uint64_t window, std::span<OpenSignal> cells)
      : ring_(first, window, cells) {}

  std::uint64_t head() const { return ring_.head(); }

  template <class Apply>
  bool add_write(std::uint16_t payload, Apply apply) {
    const WideNumber wide = widen(payload, kNumPayloads, ring_.head(), ring_.window());
    if (!wide.is_open) return false;
    OpenSignal& cell = ring_.cell(wide.number);
    if (cell.is_applied) return false;
    ++cell.num_arrived;
    return settle(cell, apply);
  }

  template <class Apply>
  bool add_record(const SignalRecord& record, Apply apply) {
    if (!ring_.is_open(record.number)) return false;
    OpenSignal& cell = ring_.cell(record.number);
    if (cell.has_record) return false;
    cell.take(record);
    return settle(cell, apply);
  }

 private:
  template <class Apply>
  bool settle(OpenSignal& cell, Apply apply) {
    if (cell.is_complete()) {
      apply(cell.slot, cell.add);
      cell.is_applied = true;
      while (ring_.cell(ring_.head()).is_applied) ring_.advance();
    }
    return !cell.is_overrun();
  }

  SignalRing ring_;
};

}  // namespace ep::fabric
