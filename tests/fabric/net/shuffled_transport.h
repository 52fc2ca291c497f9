// SPDX-License-Identifier: Apache-2.0
// A transport whose writes and reads leave in any order, of a seed, and complete late. It reads its
// sources when they leave, and aborts where one changes before it is free.
#pragma once

#include "fabric/net/transport.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <variant>
#include <vector>

namespace ep::test {

class ShuffledTransport final : public fabric::Transport {
 public:
  ShuffledTransport(std::unique_ptr<fabric::Transport> inner, std::uint64_t seed);

  int rank() const override { return inner_->rank(); }
  int num_ranks() const override { return inner_->num_ranks(); }
  const fabric::TransportTraits& traits() const override { return inner_->traits(); }
  Result<fabric::WindowId> add_window(std::span<std::byte> memory) override;
  std::vector<std::byte> describe_window(fabric::WindowId window) const override {
    return inner_->describe_window(window);
  }
  Status set_peer_window(int peer,
                         fabric::WindowId window,
                         std::span<const std::byte> description) override {
    return inner_->set_peer_window(peer, window, description);
  }
  Status failure(int context) const override { return inner_->failure(context); }

  fabric::Posted write(const fabric::WriteOp& op) override;
  fabric::Posted read(const fabric::ReadOp& op) override { return hold(op.context, op); }
  int poll(int context, std::span<fabric::NetEvent> events) override;
  void sleep(int context, std::chrono::milliseconds at_most) override {
    inner_->sleep(context, at_most);
  }

 private:
  using Op = std::variant<fabric::WriteOp, fabric::ReadOp>;
  /// A source that may not change.
  struct Guard {
    std::uint64_t cookie = 0;
    std::span<const std::byte> source{};
    std::uint64_t hash = 0;
  };
  struct Context {
    std::mt19937_64 random{};
    std::vector<Op> held{};
    std::vector<Guard> guards{};
    std::vector<fabric::NetEvent> late{};
  };
  static constexpr std::size_t kMaxHeld = 64;

  Context& at(int context) { return contexts_[static_cast<std::size_t>(context)]; }
  fabric::Posted hold(int context, const Op& op);
  void release_some(Context& context);
  int delay_some(Context& context, std::span<fabric::NetEvent> events, std::size_t count);
  static void check_source(Context& context, std::uint64_t cookie);

  std::unique_ptr<fabric::Transport> inner_;
  std::vector<std::span<std::byte>> windows_;
  std::vector<Context> contexts_;
};

}  // namespace ep::test
