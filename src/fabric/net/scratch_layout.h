// SPDX-License-Identifier: Apache-2.0
// Where cells lie in the scratch window, equal on all ranks. `in` is written by the peer, `out` is
// the source of this rank's writes.
#pragma once

#include "fabric/net/net_config.h"
#include "fabric/net/wire_cells.h"

#include <cstdint>

namespace ep::fabric {

class ScratchLayout {
 public:
  ScratchLayout(const NetConfig& config, int num_ranks);

  std::int64_t bytes() const { return bytes_; }

  /// For streams: cells of a context with a peer.
  std::int64_t record_in(int context, int peer, std::uint64_t number) const {
    return stream(context, peer) + cell(number, epoch_ring_);
  }
  std::int64_t record_out(int context, int peer, std::uint64_t number) const {
    return stream(context, peer) + record_out_ + cell(number, epoch_ring_);
  }
  std::int64_t part_in(int context, int peer, std::uint64_t number) const {
    return stream(context, peer) + part_in_ + cell(number, part_ring_);
  }
  std::int64_t part_out(int context, int peer, std::uint64_t number) const {
    return stream(context, peer) + part_out_ + cell(number, part_ring_);
  }
  std::int64_t ack_in(int context, int peer, std::uint32_t index) const {
    return stream(context, peer) + ack_in_ + cell(index, kNumAckCells);
  }
  std::int64_t ack_out(int context, int peer, std::uint32_t index) const {
    return stream(context, peer) + ack_out_ + cell(index, kNumAckCells);
  }
  /// The source of a put of a value: one for each operation of the window.
  std::int64_t value_out(int context, int peer, std::uint64_t op) const {
    return stream(context, peer) + value_out_ +
           static_cast<std::int64_t>(op & (window_ops_ - 1)) *
               static_cast<std::int64_t>(sizeof(std::uint64_t));
  }

  std::int64_t message_in(int peer, std::uint32_t index) const {
    return messages_in_ +
           (static_cast<std::int64_t>(peer) * kNumMessageCells + index) * kMessageCellBytes;
  }
  /// One source for all peers.
  std::int64_t message_out(std::uint32_t index) const {
    return messages_out_ + index * kMessageCellBytes;
  }

 private:
  static std::int64_t cell(std::uint64_t number, std::uint64_t ring) {
    return static_cast<std::int64_t>(number & (ring - 1)) * kCellBytes;
  }
  std::int64_t stream(int context, int peer) const {
    return (static_cast<std::int64_t>(context) * num_ranks_ + peer) * stream_bytes_;
  }

  std::int64_t num_ranks_;
  std::uint64_t epoch_ring_;
  std::uint64_t part_ring_;
  std::uint64_t window_ops_;
  std::int64_t record_out_ = 0;
  std::int64_t part_in_ = 0;
  std::int64_t part_out_ = 0;
  std::int64_t ack_in_ = 0;
  std::int64_t ack_out_ = 0;
  std::int64_t value_out_ = 0;
  std::int64_t stream_bytes_ = 0;
  std::int64_t messages_in_ = 0;
  std::int64_t messages_out_ = 0;
  std::int64_t bytes_ = 0;
};

}  // namespace ep::fabric
