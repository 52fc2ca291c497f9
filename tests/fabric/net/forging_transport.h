// SPDX-License-Identifier: Apache-2.0
// A transport by which a test plays a peer that sends anything.
#pragma once

#include "fabric/net/transport.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace ep::test {

/// What the test forges, and what the transport of one rank lets it see.
struct Forge {
  std::deque<fabric::NetEvent> events;  ///< reported at the next poll of context 0
  std::span<std::byte> scratch;         ///< the first window of the rank

  void arrive(int peer, std::uint32_t immediate) {
    events.push_back(
        {.kind = fabric::NetEvent::Kind::kArrival, .peer = peer, .immediate = immediate});
  }
};

class ForgingTransport final : public fabric::Transport {
 public:
  ForgingTransport(std::unique_ptr<fabric::Transport> inner, Forge& forge)
      : inner_(std::move(inner)), forge_(forge) {}

  int rank() const override { return inner_->rank(); }
  int num_ranks() const override { return inner_->num_ranks(); }
  const fabric::TransportTraits& traits() const override { return inner_->traits(); }
  Result<fabric::WindowId> add_window(std::span<std::byte> memory) override {
    if (forge_.scratch.empty()) forge_.scratch = memory;
    return inner_->add_window(memory);
  }
  std::vector<std::byte> describe_window(fabric::WindowId window) const override {
    return inner_->describe_window(window);
  }
  Status set_peer_window(int peer,
                         fabric::WindowId window,
                         std::span<const std::byte> description) override {
    return inner_->set_peer_window(peer, window, description);
  }
  fabric::Posted write(const fabric::WriteOp& op) override { return inner_->write(op); }
  fabric::Posted read(const fabric::ReadOp& op) override { return inner_->read(op); }
  void sleep(int context, std::chrono::milliseconds at_most) override {
    inner_->sleep(context, at_most);
  }
  Status failure(int context) const override { return inner_->failure(context); }

  int poll(int context, std::span<fabric::NetEvent> events) override {
    if (context != 0 || forge_.events.empty()) return inner_->poll(context, events);
    const std::size_t count = std::min(events.size(), forge_.events.size());
    for (std::size_t i = 0; i < count; ++i) {
      events[i] = forge_.events.front();
      forge_.events.pop_front();
    }
    return static_cast<int>(count);
  }

 private:
  std::unique_ptr<fabric::Transport> inner_;
  Forge& forge_;
};

}  // namespace ep::test
