// SPDX-License-Identifier: Apache-2.0
// One region behind the other.
#include "fabric/net/scratch_layout.h"

namespace ep::fabric {
namespace {

/// Gives out regions, each of whole cells.
class Regions {
 public:
  std::int64_t add(std::int64_t bytes) {
    const std::int64_t at = end_;
    end_ += (bytes + kCellBytes - 1) / kCellBytes * kCellBytes;
    return at;
  }
  std::int64_t end() const { return end_; }

 private:
  std::int64_t end_ = 0;
};

}  // namespace

ScratchLayout::ScratchLayout(const NetConfig& config, int num_ranks)
    : num_ranks_(num_ranks),
      epoch_ring_(static_cast<std::uint64_t>(config.epoch_ring)),
      part_ring_(static_cast<std::uint64_t>(config.part_ring)),
      window_ops_(static_cast<std::uint64_t>(config.window_ops)) {
  const std::int64_t record_bytes = config.epoch_ring * kCellBytes;
  const std::int64_t part_bytes = config.part_ring * kCellBytes;
  constexpr std::int64_t kAckBytes = kNumAckCells * kCellBytes;
  constexpr std::int64_t kMessageBytes = kNumMessageCells * kMessageCellBytes;

  Regions stream;
  stream.add(record_bytes);  // record_in, at 0
  record_out_ = stream.add(record_bytes);
  part_in_ = stream.add(part_bytes);
  part_out_ = stream.add(part_bytes);
  ack_in_ = stream.add(kAckBytes);
  ack_out_ = stream.add(kAckBytes);
  value_out_ = stream.add(config.window_ops * static_cast<std::int64_t>(sizeof(std::uint64_t)));
  stream_bytes_ = stream.end();

  Regions all;
  all.add(config.num_contexts * num_ranks_ * stream_bytes_);
  messages_in_ = all.add(num_ranks_ * kMessageBytes);
  messages_out_ = all.add(kMessageBytes);
  bytes_ = all.end();
}

}  // namespace ep::fabric
