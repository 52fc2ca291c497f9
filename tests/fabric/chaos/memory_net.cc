// SPDX-License-Identifier: Apache-2.0
// A post is a function that the poll of its context calls; in order.
#include "tests/fabric/chaos/memory_net.h"

#include <cstring>
#include <utility>

namespace ep::test {
namespace {

using fabric::NetEvent;
using fabric::Posted;
using fabric::WindowPlace;

class MemoryTransport final : public fabric::Transport {
 public:
  MemoryTransport(std::shared_ptr<MemoryNet> net, int rank) : net_(std::move(net)), rank_(rank) {}

  int rank() const override { return rank_; }
  int num_ranks() const override { return net_->options.num_ranks; }
  const fabric::TransportTraits& traits() const override { return net_->options.traits; }

  Result<fabric::WindowId> add_window(std::span<std::byte> memory) override {
    self().windows.push_back(memory);
    return static_cast<fabric::WindowId>(self().windows.size()) - 1;
  }
  std::vector<std::byte> describe_window(fabric::WindowId /*window*/) const override {
    return {std::byte{1}};
  }
  Status set_peer_window(int /*peer*/,
                         fabric::WindowId /*window*/,
                         std::span<const std::byte> description) override {
    if (description.size() == 1) return Status();
    return Status(Errc::kFabric, "memory net: no description");
  }

  Posted write(const fabric::WriteOp& op) override {
    return post(op.context, [this, op] { land(op); });
  }
  Posted read(const fabric::ReadOp& op) override {
    return post(op.context, [this, op] {
      std::memcpy(at(rank_, op.dst), at(op.peer, op.src), static_cast<std::size_t>(op.bytes));
      give(rank_, op.context,
           {.kind = NetEvent::Kind::kReadDone, .peer = op.peer, .cookie = op.cookie});
    });
  }

  int poll(int context, std::span<NetEvent> events) override {
    const auto index = static_cast<std::size_t>(context);
    for (auto posts = std::exchange(self().posts[index], {}); const auto& land : posts) land();
    std::size_t num_events = 0;
    auto& waiting = self().events[index];
    for (; num_events < events.size() && !waiting.empty(); waiting.pop_front()) {
      events[num_events] = waiting.front();
      if (events[num_events++].kind != NetEvent::Kind::kArrival) --self().num_outstanding[index];
    }
    return static_cast<int>(num_events);
  }
  void sleep(int /*context*/, std::chrono::milliseconds /*at_most*/) override {}
  Status failure(int /*context*/) const override { return Status(); }

 private:
  MemoryNet::Rank& self() { return net_->ranks[static_cast<std::size_t>(rank_)]; }

  std::byte* at(int rank, const WindowPlace& place) {
    auto& windows = net_->ranks[static_cast<std::size_t>(rank)].windows;
    return windows[static_cast<std::size_t>(place.window)].data() + place.offset;
  }

  void give(int rank, int context, const NetEvent& event) {
    net_->ranks[static_cast<std::size_t>(rank)].events[static_cast<std::size_t>(context)].push_back(
        event);
  }

  Posted post(int context, std::function<void()> land) {
    int& outstanding = self().num_outstanding[static_cast<std::size_t>(context)];
    if (outstanding >= traits().max_outstanding) return Posted::kBusy;
    ++outstanding;
    self().posts[static_cast<std::size_t>(context)].push_back(std::move(land));
    return Posted::kYes;
  }

  void land(const fabric::WriteOp& op) {
    if (op.bytes > 0) {
      std::memcpy(at(op.peer, op.dst), at(rank_, op.src), static_cast<std::size_t>(op.bytes));
    }
    give(rank_, op.context,
         {.kind = NetEvent::Kind::kSourceFree, .peer = op.peer, .cookie = op.cookie});
    if (op.immediate) {
      give(op.peer, op.context,
           {.kind = NetEvent::Kind::kArrival, .peer = rank_, .immediate = *op.immediate});
    }
  }

  const std::shared_ptr<MemoryNet> net_;
  const int rank_;
};

}  // namespace

MemoryNet::MemoryNet(const MemoryNetOptions& net_options) : options(net_options) {
  const auto num_contexts = static_cast<std::size_t>(options.traits.num_contexts);
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    ranks.push_back({.windows = {},
                     .events = std::vector<std::deque<NetEvent>>(num_contexts),
                     .posts = std::vector<std::deque<std::function<void()>>>(num_contexts),
                     .num_outstanding = std::vector<int>(num_contexts)});
  }
}

std::vector<std::unique_ptr<fabric::Transport>> make_memory_net(const MemoryNetOptions& options) {
  const auto net = std::make_shared<MemoryNet>(options);
  std::vector<std::unique_ptr<fabric::Transport>> transports;
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    transports.push_back(std::make_unique<MemoryTransport>(net, rank));
  }
  return transports;
}

}  // namespace ep::test
