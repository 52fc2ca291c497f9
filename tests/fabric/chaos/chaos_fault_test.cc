// SPDX-License-Identifier: Apache-2.0
// Peers that die, stop and come back; what no network does, where a test asks for it; bad input.
#include "fabric/chaos/chaos.h"
#include "fabric/net/local_transport.h"
#include "tests/fabric/chaos/chaos_net.h"
#include "tests/fabric/chaos/memory_net.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace ep::fabric {
namespace {

using test::ChaosNet;
using Kind = NetEvent::Kind;

/// How many events of a kind a rank saw of each peer.
class Tally {
 public:
  ChaosNet::OnEvent recorder() {
    return [this](int rank, const NetEvent& event) {
      ++counts_[{static_cast<int>(event.kind), rank, event.peer}];
      if (event.kind == Kind::kFailure) last_error = event.error;
    };
  }
  int of(Kind kind, int rank, int peer) const {
    const auto found = counts_.find({static_cast<int>(kind), rank, peer});
    return found == counts_.end() ? 0 : found->second;
  }
  int last_error = 0;

 private:
  std::map<std::array<int, 3>, int> counts_;
};

WriteOp small_write(int peer) { return {.peer = peer, .bytes = 8, .immediate = 1, .cookie = 2}; }

ChaosConfig with_fault(const ChaosFault& fault) {
  ChaosConfig config{.seed = 1};
  config.faults.push_back(fault);
  return config;
}

/// Posts one write at a time to ranks 1 and 2 and polls between them.
Tally run_three_ranks(ChaosNet& net, int num_writes) {
  Tally tally;
  for (int i = 0; i < num_writes; ++i) {
    net[0].write(small_write(1));
    net[0].write(small_write(2));
    net.poll_all(1, tally.recorder());
  }
  net.poll_all(4, tally.recorder());
  return tally;
}

TEST(ChaosFaults, ABlackHoleSwallowsOnePeerFromItsEventOn) {
  ChaosNet net(with_fault({.kind = ChaosFault::Kind::kBlackHole, .peer = 1, .at_event = 10}), 64,
               {.num_ranks = 3});
  Tally tally = run_three_ranks(net, 100);
  EXPECT_GE(tally.of(Kind::kArrival, 1, 0), 9);
  EXPECT_LE(tally.of(Kind::kArrival, 1, 0), 11);
  EXPECT_EQ(tally.of(Kind::kFailure, 0, 1), 0) << "a black hole says nothing";
  EXPECT_EQ(tally.of(Kind::kArrival, 2, 0), 100);
  EXPECT_EQ(tally.of(Kind::kSourceFree, 0, 2), 100);
  EXPECT_EQ(net[0].write(small_write(1)), Posted::kBusy);
  EXPECT_EQ(net[1].write(small_write(0)), Posted::kYes);
  net.poll_all(4, tally.recorder());
  EXPECT_EQ(tally.of(Kind::kArrival, 0, 1), 0) << "nothing comes out of it";
  EXPECT_GT(net[0].counts()[ChaosDeed::kLost], 10u);
}

TEST(ChaosFaults, AResetFailsWhatIsUnderWayAndThenOnlyIsBusy) {
  ChaosConfig config = with_fault({.kind = ChaosFault::Kind::kReset, .peer = 1, .at_event = 3});
  config.delay = {.permille = 1000, .max_polls = 1};
  ChaosNet net(config, 64);
  for (int i = 0; i < 4; ++i) ASSERT_EQ(net[0].write(small_write(1)), Posted::kYes);
  EXPECT_EQ(net[0].write(small_write(1)), Posted::kBusy);
  Tally tally;
  net.poll_all(10, tally.recorder());
  EXPECT_EQ(tally.of(Kind::kFailure, 0, 1), 4);
  EXPECT_EQ(tally.last_error, ECONNRESET);
  EXPECT_EQ(tally.of(Kind::kArrival, 1, 0), 0);
  EXPECT_EQ(net[0].write(small_write(1)), Posted::kBusy);
}

TEST(ChaosFaults, OneOperationFailsAndNothingOfItLands) {
  ChaosNet net(
      with_fault(
          {.kind = ChaosFault::Kind::kFailOneOp, .peer = 1, .at_event = 1, .error = ECANCELED}),
      64);
  for (std::int64_t i = 0; i < 3; ++i) {
    net.window(0)[static_cast<std::size_t>(i)] = std::byte{9};
    ASSERT_EQ(net[0].write({.peer = 1, .src = {0, i}, .dst = {0, i}, .bytes = 1, .immediate = 1}),
              Posted::kYes);
  }
  Tally tally;
  net.poll_all(4, tally.recorder());
  EXPECT_EQ(tally.of(Kind::kFailure, 0, 1), 1);
  EXPECT_EQ(tally.last_error, ECANCELED);
  EXPECT_EQ(tally.of(Kind::kArrival, 1, 0), 2);
  EXPECT_EQ(net.window(1)[0], std::byte{9});
  EXPECT_EQ(net.window(1)[1], std::byte{0});
  EXPECT_EQ(net.window(1)[2], std::byte{9});
}

TEST(ChaosFaults, AStoppedPeerComesBackAndMissesNothing) {
  ChaosNet net(with_fault({.kind = ChaosFault::Kind::kStop, .peer = 1, .at_event = 5, .polls = 50}),
               64);
  Tally tally;
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(net[0].write(small_write(1)), Posted::kYes);
    ASSERT_EQ(net[1].write(small_write(0)), Posted::kYes);
  }
  net.poll_all(40, tally.recorder());
  EXPECT_EQ(tally.of(Kind::kArrival, 1, 0), 0);
  EXPECT_EQ(tally.of(Kind::kArrival, 0, 1), 0);
  net.poll_all(30, tally.recorder());
  EXPECT_EQ(tally.of(Kind::kArrival, 1, 0), 8);
  EXPECT_EQ(tally.of(Kind::kArrival, 0, 1), 8);
}

TEST(ChaosFaults, EventsAreDoubledOnlyWhereAsked) {
  ChaosNet net({.seed = 1,
                .late_arrival = {.permille = 0, .max_polls = 5},
                .late_completion = {.permille = 0, .max_polls = 5},
                .duplicate_source_free_permille = 1000,
                .duplicate_arrival_permille = 1000},
               64);
  ASSERT_EQ(net[0].write(small_write(1)), Posted::kYes);
  Tally tally;
  net.poll_all(20, tally.recorder());
  EXPECT_EQ(tally.of(Kind::kSourceFree, 0, 1), 2);
  EXPECT_EQ(tally.of(Kind::kArrival, 1, 0), 2);
  EXPECT_EQ(net.counts()[ChaosDeed::kDuplicates], 2u);
}

TEST(ChaosFaults, AStaleWriteLandsAtItsPoll) {
  ChaosConfig config{.seed = 1};
  config.stale_writes.push_back({.peer = 1,
                                 .context = 0,
                                 .at_poll = 7,
                                 .dst = {.window = 0, .offset = 60},
                                 .bytes = std::vector<std::byte>(4, std::byte{6}),
                                 .immediate = 77});
  ChaosNet net(config, 64);
  Tally tally;
  net.poll_all(6, tally.recorder());
  EXPECT_EQ(net.window(0)[60], std::byte{0});
  net.poll_all(1, tally.recorder());
  EXPECT_EQ(net.window(0)[63], std::byte{6});
  EXPECT_EQ(tally.of(Kind::kArrival, 0, 1), 1);
  net.poll_all(9, tally.recorder());
  EXPECT_EQ(net[0].counts()[ChaosDeed::kStaleWrites], 1u) << "once";
}

/// Sends so many writes to the other rank and waits for as many of it.
void exchange(Transport& transport, int context, int num_writes) {
  int num_posted = 0;
  int num_events = 0;
  while (num_posted < num_writes || num_events < 2 * num_writes) {
    const WriteOp op{.peer = 1 - transport.rank(),
                     .context = context,
                     .src = {.window = 0, .offset = 16 * std::int64_t{context}},
                     .dst = {.window = 0, .offset = 16 * std::int64_t{context} + 8},
                     .bytes = 8,
                     .immediate = 1};
    if (num_posted < num_writes && transport.write(op) == Posted::kYes) ++num_posted;
    std::array<NetEvent, 8> events;
    const int num_new = transport.poll(context, events);
    num_events += num_new;
    if (num_new == 0) transport.sleep(context, std::chrono::milliseconds(1));
  }
}

TEST(ChaosFaults, ContextsMayBeUsedAtOnce) {
  constexpr int kNumContexts = 2;
  constexpr int kNumWrites = 200;
  auto inner = make_local_transports(2, {.name = {},
                                         .order = ArrivalOrder::kOrdered,
                                         .num_contexts = kNumContexts,
                                         .max_outstanding = 16});
  ASSERT_TRUE(inner.ok());
  ChaosConfig config = ChaosConfig::hostile(1, ArrivalOrder::kUnordered);
  for (int peer : {0, 1}) {
    config.faults.push_back({.kind = ChaosFault::Kind::kStop, .peer = peer, .polls = 100});
  }
  std::vector<std::vector<std::byte>> memory(2, std::vector<std::byte>(16 * kNumContexts));
  std::vector<std::unique_ptr<ChaosTransport>> ranks;
  for (auto& transport : *inner) {
    ranks.push_back(*make_chaos_transport(std::move(transport), config));
    ASSERT_TRUE(ranks.back()->add_window(memory[ranks.size() - 1]).ok());
  }
  for (int rank : {0, 1}) {
    ASSERT_TRUE(ranks[1 - rank]->set_peer_window(rank, 0, ranks[rank]->describe_window(0)).ok());
  }
  {
    std::vector<std::jthread> threads;
    for (auto& rank : ranks) {
      for (int context = 0; context < kNumContexts; ++context) {
        threads.emplace_back([&rank, context] { exchange(*rank, context, kNumWrites); });
      }
    }
  }
  for (auto& rank : ranks) {
    EXPECT_EQ(rank->counts()[ChaosDeed::kArrivals], std::uint64_t{kNumContexts * kNumWrites});
  }
}

TEST(ChaosInput, PlacesOutsideTheirWindowsAreRefusedAtOnce) {
  ChaosNet net(ChaosConfig::hostile(1, ArrivalOrder::kUnordered), 64);
  const std::vector<WriteOp> wrong = {
      {.peer = 1, .src = {0, 60}, .dst = {0, 0}, .bytes = 8},
      {.peer = 1, .src = {0, 0}, .dst = {0, 60}, .bytes = 8},
      {.peer = 1, .src = {0, -1}, .dst = {0, 0}, .bytes = 8},
      {.peer = 1, .src = {0, 0}, .dst = {0, 65}, .bytes = 0, .immediate = 1},
      {.peer = 1, .src = {1, 0}, .dst = {0, 0}, .bytes = 8},
      {.peer = 1, .src = {0, 0}, .dst = {-1, 0}, .bytes = 8},
      {.peer = 1, .src = {0, 0}, .dst = {0, 0}, .bytes = -8},
      {.peer = 2, .src = {0, 0}, .dst = {0, 0}, .bytes = 8},
  };
  for (const WriteOp& op : wrong) {
    EXPECT_EQ(net[0].write(op), Posted::kFailed);
    EXPECT_EQ(net[0].failure(0).code(), Errc::kInvalidArgument) << net[0].failure(0).to_string();
  }
  EXPECT_EQ(net.counts()[ChaosDeed::kOps], 0u);
}

TEST(ChaosInput, ADescriptionWithoutASizeIsRefused) {
  ChaosNet net({}, 64);
  const Status status = net[0].set_peer_window(1, 0, std::vector<std::byte>(7));
  EXPECT_EQ(status.code(), Errc::kFabric);
  EXPECT_EQ(status.peer(), 1);
  EXPECT_EQ(net[0].set_peer_window(1, 0, std::vector<std::byte>(8, std::byte{0xff})).code(),
            Errc::kFabric);
  EXPECT_EQ(net[0].set_peer_window(1, 0, std::vector<std::byte>(8)).code(), Errc::kFabric)
      << "the inner description is missing";
}

TEST(ChaosInput, AConfigThatMakesNoSenseIsNamed) {
  const auto message_of = [](const ChaosConfig& config) {
    auto made = make_chaos_transport(std::move(test::make_memory_net({})[0]), config);
    EXPECT_EQ(made.status().code(), Errc::kInvalidArgument);
    return made.status().message();
  };
  EXPECT_EQ(message_of({.delay = {.permille = 1001}}),
            "chaos: delay 1001 permille, expected 0 to 1000");
  EXPECT_EQ(message_of({.stall = {.permille = 1, .max_polls = -3}}), "chaos: stall of -3 polls");
  EXPECT_EQ(message_of({.window_ops = 0}), "chaos: window of 0 operations, expected at least 1");
  EXPECT_EQ(message_of(with_fault({.peer = 2})), "chaos: fault of rank 2 of 2");
}

}  // namespace
}  // namespace ep::fabric
