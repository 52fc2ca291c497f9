// SPDX-License-Identifier: Apache-2.0
// A transport whose writes and reads leave in any order, of a seed; reads its sources when they do.
#pragma once

#include "fabric/net/transport.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <variant>
#include <vector>

namespace ep::test {

class ShuffledTransport final : public fabric::Transport {
 public:
  ShuffledTransport(std::unique_ptr<fabric::Transport> inner, std::uint64_t seed)
      : inner_(std::move(inner)), contexts_(static_cast<std::size_t>(traits().num_contexts)) {
    for (Context& context : contexts_) context.random.seed(seed++);
  }

  int rank() const override { return inner_->rank(); }
  int num_ranks() const override { return inner_->num_ranks(); }
  const fabric::TransportTraits& traits() const override { return inner_->traits(); }
  Result<fabric::WindowId> add_window(std::span<std::byte> memory) override {
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
  Status failure(int context) const override { return inner_->failure(context); }

  fabric::Posted write(const fabric::WriteOp& op) override { return hold(op.context, op); }
  fabric::Posted read(const fabric::ReadOp& op) override { return hold(op.context, op); }

  int poll(int context, std::span<fabric::NetEvent> events) override {
    release_some(contexts_[static_cast<std::size_t>(context)]);
    return inner_->poll(context, events);
  }
  void sleep(int context, std::chrono::milliseconds at_most) override {
    inner_->sleep(context, at_most);
  }

 private:
  using Op = std::variant<fabric::WriteOp, fabric::ReadOp>;
  struct Context {
    std::mt19937_64 random{};
    std::deque<Op> held{};
  };
  static constexpr std::size_t kMaxHeld = 64;

  fabric::Posted hold(int context, const Op& op) {
    std::deque<Op>& held = contexts_[static_cast<std::size_t>(context)].held;
    if (held.size() == kMaxHeld) return fabric::Posted::kBusy;
    held.push_back(op);
    return fabric::Posted::kYes;
  }

  void release_some(Context& context) {
    while (!context.held.empty() && context.random() % 3 != 0) {
      std::swap(context.held[context.random() % context.held.size()], context.held.back());
      const Op op = context.held.back();
      const fabric::Posted posted = std::holds_alternative<fabric::WriteOp>(op)
                                        ? inner_->write(std::get<fabric::WriteOp>(op))
                                        : inner_->read(std::get<fabric::ReadOp>(op));
      if (posted != fabric::Posted::kYes) return;
      context.held.pop_back();
    }
  }

  std::unique_ptr<fabric::Transport> inner_;
  std::vector<Context> contexts_;
};

}  // namespace ep::test
