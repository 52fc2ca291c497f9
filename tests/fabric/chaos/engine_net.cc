// SPDX-License-Identifier: Apache-2.0
// Engines meet on threads, in calm; chaos begins when all is quiet.
#include "tests/fabric/chaos/engine_net.h"

#include "base/check.h"

#include <atomic>
#include <utility>

namespace ep::test {
namespace {

std::atomic<std::int64_t> clock_now_ns{0};

std::int64_t test_clock_ns() { return clock_now_ns.load(std::memory_order_relaxed); }

/// Greetings and their acknowledgements are over after far fewer.
constexpr int kQuietRounds = 50;
constexpr int kOperationsOfAContext = 64;

}  // namespace

EngineNet::EngineNet(const EngineNetOptions& options)
    : random_(fabric::ChaosRandom(options.chaos_of(0).seed).split(4)),
      chaos_(static_cast<std::size_t>(options.num_ranks)) {
  clock_now_ns = 1;
  EngineGroupOptions group{.num_ranks = options.num_ranks,
                           .config = options.config,
                           .window_bytes = options.window_bytes};
  group.traits.order = fabric::ArrivalOrder::kOrdered;
  group.traits.num_contexts = kNumContexts;
  group.traits.max_outstanding = kOperationsOfAContext;
  group.traits.max_write_bytes = 288;  // the least are 272: many puts are cut
  group.config.num_contexts = kNumContexts;
  group.config.clock_ns = test_clock_ns;
  group.config.has_service_thread = false;
  group.wrap = [&](std::unique_ptr<fabric::Transport> inner) -> std::unique_ptr<fabric::Transport> {
    const int rank = inner->rank();
    fabric::ChaosConfig config = options.chaos_of(rank);
    config.is_calm_at_first = true;
    auto made = fabric::make_chaos_transport(std::move(inner), config);
    EP_CHECK(made.ok(), made.status().to_string());
    chaos_[static_cast<std::size_t>(rank)] = made->get();
    return std::move(*made);
  };
  group_ = std::make_unique<EngineGroup>(group);
  if (!group_->is_fine()) return;
  for (int round = 0; round < kQuietRounds; ++round) group_->drive();
  for (int rank = 0; rank < options.num_ranks; ++rank) align(rank);
  for (fabric::ChaosTransport* chaos : chaos_) chaos->begin();
}

/// An engine takes peers and contexts in turns that go on with each progress, and how many of these
/// its making took is a matter of threads. Ends them all where they began: each context after a
/// multiple of kPeerTurns polls, the engine after a multiple of kContextTurns calls.
void EngineNet::align(int rank) {
  constexpr std::uint64_t kPeerTurns = 64;
  constexpr std::uint64_t kContextTurns = 16;
  fabric::NetEngine& engine = group_->engine(rank);
  const auto polls = [&](int context) { return chaos(rank).num_polls(context) % kPeerTurns; };
  std::uint64_t num_calls = kQuietRounds * kNumContexts;
  for (int context = 1; context < kNumContexts; ++context) {
    for (; polls(context) != polls(0); ++num_calls) engine.progress(context);
  }
  for (int context = 0; num_calls % kContextTurns != 0 || context != 0; ++num_calls) {
    engine.progress(context);
    context = (context + 1) % kNumContexts;
  }
  while (polls(0) != 0) engine.serve();
}

Status EngineNet::status() const {
  for (const Status& status : group_->statuses()) {
    if (!status.ok()) return status;
  }
  for (std::size_t rank = 0; rank < chaos_.size(); ++rank) {
    if (const Status status = group_->engine(static_cast<int>(rank)).failure(); !status.ok()) {
      return status;
    }
  }
  return {};
}

fabric::ChaosCounts EngineNet::counts() const {
  fabric::ChaosCounts sum;
  for (const fabric::ChaosTransport* chaos : chaos_) sum += chaos->counts();
  return sum;
}

void EngineNet::drive(std::int64_t ns) {
  constexpr int kPermilleDriven = 750;
  for (std::size_t rank = 0; rank < chaos_.size(); ++rank) {
    fabric::NetEngine& engine = group_->engine(static_cast<int>(rank));
    for (int context = 0; context < engine.num_contexts(); ++context) {
      if (random_.chance(kPermilleDriven)) engine.progress(context);
    }
  }
  clock_now_ns += ns;
}

}  // namespace ep::test
