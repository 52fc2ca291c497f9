// SPDX-License-Identifier: Apache-2.0
// A sender (rank 0) and a receiver (rank 1) over chaos, for small protocols in words of 64 bits.
#pragma once

#include "tests/fabric/chaos/chaos_net.h"

#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>

namespace ep::test {

/// What a protocol got wrong; empty: nothing.
using Violation = std::string;

class Duo {
 public:
  static constexpr int kSender = 0;
  static constexpr int kReceiver = 1;
  static constexpr std::size_t kNumWords = 512;

  explicit Duo(const fabric::ChaosConfig& config) : net_(config, kNumWords * 8) {}

  std::uint64_t load(int rank, std::uint64_t word) {
    std::uint64_t value = 0;
    std::memcpy(&value, net_.window(rank).data() + word * 8, sizeof(value));
    return value;
  }
  void store(int rank, std::uint64_t word, std::uint64_t value) {
    std::memcpy(net_.window(rank).data() + word * 8, &value, sizeof(value));
  }

  /// From the rank's words to the other one's; false: busy.
  struct Put {
    std::uint64_t src_word = 0;
    std::uint64_t dst_word = 0;
    std::uint64_t num_words = 0;
    std::optional<std::uint32_t> immediate{};
    std::uint64_t cookie = 0;
  };
  bool put(int rank, const Put& put) {
    return net_[rank].write({.peer = 1 - rank,
                             .src = place(put.src_word),
                             .dst = place(put.dst_word),
                             .bytes = static_cast<std::int64_t>(put.num_words * 8),
                             .immediate = put.immediate,
                             .cookie = put.cookie}) == fabric::Posted::kYes;
  }

  /// Nothing but an immediate.
  bool signal(int rank, std::uint32_t immediate) { return put(rank, {.immediate = immediate}); }

  /// Polls both ranks, the arrivals of each go to its function.
  using OnImmediate = std::function<void(std::uint32_t)>;
  void poll(const OnImmediate& at_sender, const OnImmediate& at_receiver) {
    net_.poll_all(1, [&](int rank, const fabric::NetEvent& event) {
      if (event.kind == fabric::NetEvent::Kind::kSourceFree) {
        last_free_ = event.cookie;
        ++num_completions_;
      } else if (event.kind == fabric::NetEvent::Kind::kArrival) {
        (rank == kSender ? at_sender : at_receiver)(event.immediate);
      }
    });
  }

  std::uint64_t num_completions() const { return num_completions_; }
  /// Cookie of the newest kSourceFree.
  std::uint64_t last_free() const { return last_free_; }
  fabric::ChaosCounts counts() const { return net_.counts(); }

 private:
  static fabric::WindowPlace place(std::uint64_t word) {
    return {.window = 0, .offset = static_cast<std::int64_t>(word * 8)};
  }

  ChaosNet net_;
  std::uint64_t num_completions_ = 0;
  std::uint64_t last_free_ = 0;
};

}  // namespace ep::test
