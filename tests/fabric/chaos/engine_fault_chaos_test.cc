// SPDX-License-Identifier: Apache-2.0
// The engine when peers die, stop or come from another life, and when the network repeats itself.
#include "fabric/net/immediate.h"
#include "fabric/net/net_engine.h"
#include "fabric/net/scratch_layout.h"
#include "fabric/net/wire_cells.h"
#include "tests/fabric/chaos/engine_net.h"
#include "tests/fabric/chaos/engine_traffic.h"
#include "tests/support/seeds.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

namespace ep::test {
namespace {

using fabric::ArrivalOrder;
using fabric::ChaosConfig;
using fabric::ChaosDeed;
using fabric::ChaosFault;
using fabric::NetEngine;
using fabric::PeerState;
using primitives::NetSignal;
using primitives::SignalStrength;

constexpr int kVictim = 2;
constexpr std::uint32_t kSlot = 3;
constexpr std::int64_t kNsPerMs = 1'000'000;

/// Rank 2 and the other two see each other that way, from the 20th event on.
EngineNetOptions with_fault(std::uint64_t seed, const ChaosFault& what) {
  return {.chaos_of = [=](int rank) {
    ChaosFault fault = what;
    ChaosConfig chaos = ChaosConfig::hostile(seed, ArrivalOrder::kUnordered);
    fault.at_event = 20;
    for (int peer = 0; peer < 3; ++peer) {
      fault.peer = peer;
      if (peer != rank && (peer == kVictim || rank == kVictim)) chaos.faults.push_back(fault);
    }
    return chaos;
  }};
}

/// Ranks 0 and 1 send strong signals to all, `rounds` times or until the rank has failed.
struct Chatter {
  explicit Chatter(EngineNet& over) : net(over) {}

  void run(int rounds, std::int64_t ns_per_round) {
    for (int i = 0; i < rounds; ++i) {
      for (int rank = 0; rank < 2; ++rank) {
        for (int peer = 0; peer < 3; ++peer) {
          auto& sent = num_sent[static_cast<std::size_t>(rank)][static_cast<std::size_t>(peer)];
          if (peer != rank && net[rank].try_signal(0, peer, signal_of(rank))) ++sent;
        }
      }
      net.drive(ns_per_round);
    }
  }
  bool drive_until_arrived(int rank, int peer) {
    for (int i = 0; i < 20'000 && !has_arrived(rank, peer); ++i) net.drive(1000);
    return has_arrived(rank, peer);
  }
  bool has_arrived(int rank, int peer) {
    return net[peer].signal_value(signal_of(rank).slot) ==
           num_sent[static_cast<std::size_t>(rank)][static_cast<std::size_t>(peer)];
  }
  static NetSignal signal_of(int rank) {
    return {SignalStrength::kStrong, kSlot + static_cast<std::uint32_t>(rank), 1};
  }

  EngineNet& net;
  std::array<std::array<std::uint64_t, 3>, 2> num_sent{};
};

TEST(EngineFaultsUnderChaos, APeerInABlackHoleIsBlamedAndTheOthersGoOn) {
  for (const std::uint64_t seed : seeds(scaled_rounds(20, 500))) {
    EngineNetOptions options = with_fault(seed, {.kind = ChaosFault::Kind::kBlackHole});
    options.config.dead_after = std::chrono::milliseconds(3000);
    EngineNet net(options);
    Chatter chatter(net);
    chatter.run(2000, 5 * kNsPerMs);
    for (int rank = 0; rank < 2; ++rank) {
      ASSERT_EQ(net[rank].peer_state(kVictim), PeerState::kDead) << replay_command(seed);
      EXPECT_EQ(net[rank].failure().code(), Errc::kPeerTimeout);
      EXPECT_EQ(net[rank].failure().peer(), kVictim) << net[rank].failure().to_string();
      EXPECT_EQ(net[rank].peer_state(1 - rank), PeerState::kOk) << replay_command(seed);
      EXPECT_TRUE(chatter.drive_until_arrived(rank, 1 - rank)) << replay_command(seed);
    }
    EXPECT_GT(net.counts()[ChaosDeed::kLost], 0u);
  }
}

TEST(EngineFaultsUnderChaos, AResetIsBlamedAtOnce) {
  for (const std::uint64_t seed : seeds(scaled_rounds(20, 500))) {
    EngineNet net(with_fault(seed, {.kind = ChaosFault::Kind::kReset}));
    Chatter chatter(net);
    chatter.run(1000, 1000);
    for (int rank = 0; rank < 2; ++rank) {
      const Status failure = net[rank].failure();
      ASSERT_EQ(failure.code(), Errc::kFabric) << replay_command(seed) << failure.to_string();
      EXPECT_EQ(failure.peer(), kVictim);
      EXPECT_EQ(failure.native_code(), ECONNRESET);
      EXPECT_TRUE(chatter.drive_until_arrived(rank, 1 - rank)) << replay_command(seed);
    }
  }
}

TEST(EngineFaultsUnderChaos, AStoppedPeerIsSuspectedAndComesBack) {
  for (const std::uint64_t seed : seeds(scaled_rounds(20, 500))) {
    EngineNet net(with_fault(seed, {.kind = ChaosFault::Kind::kStop, .polls = 1500}));
    Chatter chatter(net);
    bool was_suspected = false;
    for (int i = 0; i < 400; ++i) {
      chatter.run(5, 5 * kNsPerMs);
      was_suspected |= net[0].peer_state(kVictim) == PeerState::kSuspected;
    }
    EXPECT_TRUE(was_suspected) << replay_command(seed);
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_TRUE(chatter.drive_until_arrived(rank, kVictim)) << replay_command(seed);
      EXPECT_EQ(net[rank].peer_state(kVictim), PeerState::kOk);
      EXPECT_TRUE(net[rank].failure().ok()) << net[rank].failure().to_string();
    }
  }
}

/// A record of rank 0 that an earlier life of it had sent: it would add 1000 to the slot.
fabric::ChaosStaleWrite stale_record(const fabric::NetConfig& config, std::uint64_t number) {
  const fabric::ScratchLayout layout(config, 3);
  const fabric::SignalRecord record{
      .incarnation = 77, .number = number, .add = 1000, .num_writes = 0, .slot = kSlot};
  fabric::ChaosStaleWrite stale{.peer = 0, .context = 0, .at_poll = 1};
  stale.dst = {.window = 0, .offset = layout.record_in(0, 0, number)};
  stale.bytes.resize(sizeof(record));
  std::memcpy(stale.bytes.data(), &record, sizeof(record));
  stale.immediate = fabric::encode(fabric::Immediate{.kind = fabric::ImmediateKind::kRecord,
                                                     .epoch = fabric::epoch_bits(number),
                                                     .payload = fabric::payload_bits(number)});
  return stale;
}

TEST(EngineFaultsUnderChaos, ARecordOfAnEarlierLifeIsDroppedAndCounted) {
  EngineNetOptions options;
  options.config.num_contexts = EngineNet::kNumContexts;
  options.chaos_of = [config = options.config](int rank) {
    ChaosConfig chaos{.seed = 1};
    if (rank == 1) chaos.stale_writes.push_back(stale_record(config, 0));
    return chaos;
  };
  EngineNet net(options);
  Chatter chatter(net);
  for (int i = 0; i < 100; ++i) net.drive(1000);
  EXPECT_EQ(net.counts()[ChaosDeed::kStaleWrites], 1u);
  EXPECT_EQ(net[1].signal_value(kSlot), 0u);
  EXPECT_EQ(net[1].total_counters().stale, 1u);
  chatter.run(1, 1000);
  EXPECT_TRUE(chatter.drive_until_arrived(0, 1));
  EXPECT_TRUE(net.status().ok()) << net.status().to_string();
}

/// Networks promise not to. It may end the engine, with an error, but brings nothing wrong. (The
/// same of arrivals cannot be told from more of them: only those of an earlier life can.)
TEST(EngineFaultsUnderChaos, ARepeatedCompletionIsAnErrorAtMost) {
  int num_ended = 0;
  for (const std::uint64_t seed : seeds(scaled_rounds(100, 2000))) {
    EngineTraffic traffic({.seed = seed, .duplicate_source_free_permille = 2});
    const std::string wrong = traffic.run();
    const Status failure = traffic.net().status();
    if (failure.ok()) {
      ASSERT_EQ(wrong, "") << replay_command(seed);
    } else {
      EXPECT_EQ(failure.code(), Errc::kInternal) << failure.to_string();
      EXPECT_GT(traffic.net().counts()[ChaosDeed::kDuplicates], 0u);
      ++num_ended;
    }
  }
  EXPECT_GT(num_ended, 0);
}

}  // namespace
}  // namespace ep::test
