// SPDX-License-Identifier: Apache-2.0
// Full windows, silent and dead peers, messages, and ranks that do not agree.
#include "fabric/net/net_engine.h"
#include "tests/fabric/net/engine_group.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ep::test {
namespace {

using fabric::ArrivalOrder;
using fabric::FlushScope;
using fabric::NetConfig;
using fabric::NetEngine;
using fabric::PeerState;
using primitives::SignalStrength;

constexpr primitives::NetSignal kStrong{.strength = SignalStrength::kStrong, .slot = 1};
constexpr std::int64_t kNsPerMs = 1'000'000;

/// Time that stands still unless a test moves it.
std::atomic<std::int64_t> fake_now_ns{0};
std::int64_t fake_clock_ns() { return fake_now_ns.load(); }
void pass(std::int64_t ms) { fake_now_ns += ms * kNsPerMs; }

class NetFaults : public testing::TestWithParam<ArrivalOrder> {
 protected:
  static EngineGroupOptions options(int num_ranks = 3) {
    EngineGroupOptions options;
    options.num_ranks = num_ranks;
    options.traits.order = GetParam();
    options.config.window_ops = 8;
    return options;
  }
  static int put_until_full(NetEngine& engine, int peer, std::int64_t bytes) {
    constexpr int kMore = 1000;
    int count = 0;
    while (count < kMore && engine.try_put(0, {.peer = peer, .bytes = bytes, .signal = kStrong})) {
      ++count;
    }
    return count;
  }
};

INSTANTIATE_TEST_SUITE_P(NetEngine,
                         NetFaults,
                         testing::Values(ArrivalOrder::kOrdered, ArrivalOrder::kUnordered),
                         [](const auto& order) { return std::string(name_of(order.param)); });

TEST_P(NetFaults, AFullWindowRefusesAndLosesNothing) {
  EngineGroup group(options());
  ASSERT_TRUE(group.is_fine());
  NetEngine& engine = group.engine(0);
  const int count = put_until_full(engine, 1, 8);
  EXPECT_EQ(count, 8);
  EXPECT_FALSE(engine.has_failed());
  EXPECT_TRUE(group.drive_until([&] { return group.engine(1).signal_value(1) == 8; }));
  EXPECT_TRUE(group.drive_until([&] { return engine.is_flushed(0); }));
  EXPECT_TRUE(engine.try_put(0, {.peer = 1, .bytes = 8}));
}

TEST_P(NetFaults, BytesAreBoundedButALargePutGoesAlone) {
  EngineGroupOptions small = options();
  small.config.window_bytes = 1000;
  EngineGroup group(small);
  ASSERT_TRUE(group.is_fine());
  EXPECT_EQ(put_until_full(group.engine(0), 1, 400), 2);
  EXPECT_EQ(put_until_full(group.engine(0), 2, 5000), 1);
  EXPECT_TRUE(group.drive_until([&] { return group.engine(2).signal_value(1) == 1; }));
}

TEST_P(NetFaults, APeerThatStandsStillBlocksNobodyElse) {
  EngineGroupOptions tight = options();
  tight.config.arrival_window = 4;
  EngineGroup group(tight);
  ASSERT_TRUE(group.is_fine());
  NetEngine& engine = group.engine(0);
  EXPECT_EQ(put_until_full(engine, 1, 8), 8);
  int sent = 0;
  for (int round = 0; round < 10'000 && sent < 500; ++round) {
    sent += engine.try_put(0, {.peer = 2, .bytes = 8, .signal = kStrong}) ? 1 : 0;
    engine.progress(0);
    group.engine(2).progress(0);
  }
  EXPECT_EQ(sent, 500);
  EXPECT_FALSE(engine.try_put(0, {.peer = 1, .bytes = 8}));
  EXPECT_TRUE(group.drive_until([&] {
    return group.engine(1).signal_value(1) == 8 && group.engine(2).signal_value(1) == 500;
  }));
}

TEST_P(NetFaults, ADeadPeerIsNamedAndOthersGoOn) {
  EngineGroup group(options());
  ASSERT_TRUE(group.is_fine());
  NetEngine& engine = group.engine(0);
  ASSERT_TRUE(engine.try_put(0, {.peer = 1, .bytes = 8, .signal = kStrong}));
  group.destroy(1);
  ASSERT_TRUE(group.drive_until([&] { return engine.has_failed(); }));
  EXPECT_EQ(engine.failure().code(), Errc::kFabric);
  EXPECT_EQ(engine.failure().peer(), 1);
  EXPECT_EQ(engine.peer_state(1), PeerState::kDead);
  EXPECT_FALSE(engine.try_put(0, {.peer = 1, .bytes = 8}));
  ASSERT_TRUE(engine.try_put(0, {.peer = 2, .bytes = 8, .signal = kStrong}));
  EXPECT_TRUE(group.drive_until([&] { return group.engine(2).signal_value(1) == 1; }));
  const Status flushed =
      engine.flush(0, FlushScope::kRemote, base::Deadline::after(std::chrono::milliseconds(0)));
  EXPECT_EQ(flushed.peer(), 1);
}

TEST_P(NetFaults, SilenceIsSuspectedThenDeath) {
  EngineGroupOptions clocked = options();
  clocked.config.clock_ns = fake_clock_ns;
  EngineGroup group(clocked);
  ASSERT_TRUE(group.is_fine());
  NetEngine& engine = group.engine(0);
  const auto wait = [&](std::int64_t ms) {
    for (; ms > 0; ms -= 100) {
      pass(100);
      engine.progress(0);
      group.engine(2).progress(0);
    }
  };
  engine.watch(1);
  engine.watch(2);
  wait(1'500);
  EXPECT_EQ(engine.peer_state(1), PeerState::kSuspected);
  EXPECT_EQ(engine.peer_state(2), PeerState::kOk);
  EXPECT_FALSE(engine.has_failed());
  ASSERT_TRUE(group.drive_until([&] { return engine.peer_state(1) == PeerState::kOk; }));
  wait(31'000);
  EXPECT_EQ(engine.peer_state(1), PeerState::kDead);
  EXPECT_EQ(engine.peer_state(2), PeerState::kOk);
  EXPECT_EQ(engine.failure().code(), Errc::kPeerTimeout);
  EXPECT_EQ(engine.failure().peer(), 1);
}

TEST_P(NetFaults, ARankThatWasAwayBlamesNobodyForIt) {
  EngineGroupOptions clocked = options();
  clocked.config.clock_ns = fake_clock_ns;
  EngineGroup group(clocked);
  ASSERT_TRUE(group.is_fine());
  NetEngine& engine = group.engine(0);
  engine.watch(1);
  pass(200);
  engine.progress(0);
  pass(60'000);
  engine.progress(0);
  EXPECT_EQ(engine.peer_state(1), PeerState::kOk);
}

TEST_P(NetFaults, OnlyWaitsPing) {
  EngineGroupOptions clocked = options(2);
  clocked.config.clock_ns = fake_clock_ns;
  EngineGroup group(clocked);
  ASSERT_TRUE(group.is_fine());
  group.engine(0).watch(1);
  const auto before = group.engine(0).counters(0, 1).messages;
  for (int i = 0; i < 10; ++i) {
    pass(100);
    group.engine(0).serve();
  }
  EXPECT_EQ(group.engine(0).counters(0, 1).messages, before);
  for (int i = 0; i < 10; ++i) {
    pass(100);
    group.engine(0).progress(0);
  }
  EXPECT_EQ(group.engine(0).counters(0, 1).messages, before + 1);
}

TEST_P(NetFaults, TheDiagnosisHasTheNumbers) {
  EngineGroup group(options());
  ASSERT_TRUE(group.is_fine());
  NetEngine& engine = group.engine(0);
  put_until_full(engine, 1, 8);
  const Status status =
      engine.flush(0, FlushScope::kRemote, base::Deadline::after(std::chrono::milliseconds(1)));
  EXPECT_EQ(status.code(), Errc::kPeerTimeout);
  EXPECT_NE(status.message().find("rank 1: context 0: operations 8"), std::string::npos)
      << status.message();
  const std::string wait = engine.describe_wait(1, 1, 5);
  EXPECT_NE(wait.find("signal 1 is 0, awaited 5; rank 1 is ok"), std::string::npos) << wait;
}

TEST_P(NetFaults, ADeclaredDeathCountsAsOne) {
  EngineGroup group(options());
  ASSERT_TRUE(group.is_fine());
  NetEngine& engine = group.engine(0);
  put_until_full(engine, 1, 8);
  engine.declare_dead(1, Status(Errc::kPeerTimeout, "its process ended"));
  EXPECT_EQ(engine.failure().peer(), 1);
  EXPECT_FALSE(engine.try_put(0, {.peer = 1, .bytes = 8}));
  EXPECT_NE(engine.describe_peer(1).find("its process ended"), std::string::npos);
  group.drive();
}

TEST_P(NetFaults, BadInputIsRefusedWithItsNumbers) {
  const NetEngine::Put fine{.peer = 1, .bytes = 8, .signal = kStrong};
  std::vector<NetEngine::Put> bad(8, fine);
  bad[0].peer = 0;
  bad[1].peer = 3;
  bad[2].peer = -1;
  bad[3].dst.offset = std::int64_t{1} << 16;
  bad[4].src.offset = -8;
  bad[5].dst.window = 1;
  bad[6].bytes = -1;
  bad[7].signal.slot = 1024;
  for (const NetEngine::Put& put : bad) {
    EngineGroup group(options());
    ASSERT_TRUE(group.is_fine());
    EXPECT_FALSE(group.engine(0).try_put(0, put));
    EXPECT_EQ(group.engine(0).failure().code(), Errc::kInvalidArgument);
    EXPECT_EQ(group.engine(0).failure().peer(), Status::kNoPeer);
  }
}

TEST_P(NetFaults, MessagesReachAllPeers) {
  std::array<std::vector<std::string>, 3> received;
  EngineGroupOptions listening = options();
  listening.config_of = [&received](int rank) {
    NetConfig config{.has_service_thread = false};
    config.on_message = [&received, rank](int peer, std::span<const std::byte> message) {
      std::string text(message.size(), '\0');
      std::memcpy(text.data(), message.data(), message.size());
      received[static_cast<std::size_t>(rank)].push_back(std::to_string(peer) + ":" + text);
    };
    return config;
  };
  EngineGroup group(listening);
  ASSERT_TRUE(group.is_fine());
  for (const std::string text : {"a", "bc", "", "def"}) {
    ASSERT_TRUE(group.engine(0).broadcast(std::as_bytes(std::span(text))).ok());
  }
  EXPECT_EQ(group.engine(0).broadcast({}).code(), Errc::kFabric);
  EXPECT_TRUE(group.engine(0).has_open_messages());
  EXPECT_TRUE(group.drive_until([&] { return !group.engine(0).has_open_messages(); }));
  for (const std::size_t rank : {1U, 2U}) {
    EXPECT_EQ(received[rank], std::vector<std::string>({"0:a", "0:bc", "0:", "0:def"}));
  }
  const std::vector<std::byte> long_message(257);
  EXPECT_EQ(group.engine(0).broadcast(long_message).code(), Errc::kInvalidArgument);
  group.destroy(1);
  ASSERT_TRUE(group.engine(0).broadcast(std::span(long_message).first(256)).ok());
  group.engine(0).declare_dead(1, Status(Errc::kPeerTimeout, "gone"));
  EXPECT_TRUE(group.drive_until([&] { return !group.engine(0).has_open_messages(); }));
  EXPECT_EQ(received[2].back().size(), 258U);
}

TEST_P(NetFaults, APassiveRankIsServed) {
  EngineGroupOptions served = options(2);
  served.config.heartbeat = std::chrono::milliseconds(1);
  served.config.arrival_window = 4;
  served.config_of = [config = served.config](int rank) {
    NetConfig own = config;
    own.has_service_thread = rank == 1;
    return own;
  };
  EngineGroup group(served);
  ASSERT_TRUE(group.is_fine());
  NetEngine& engine = group.engine(0);
  for (int sent = 0; sent < 20;) {
    sent += engine.try_put(0, {.peer = 1, .bytes = 8, .signal = kStrong}) ? 1 : 0;
    engine.progress(0);
  }
  const Status status = engine.flush(0, FlushScope::kRemote,
                                     base::Deadline::after(std::chrono::milliseconds(60'000)));
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(group.engine(1).signal_value(1), 20U);
}

TEST_P(NetFaults, EveryRankHearsOfSettingsThatDiffer) {
  EngineGroupOptions differing = options();
  differing.config_of = [](int rank) {
    NetConfig config{.has_service_thread = false};
    if (rank == 2) config.epoch_ring = 32;
    return config;
  };
  const EngineGroup group(differing);
  for (const Status& status : group.statuses()) {
    EXPECT_EQ(status.code(), Errc::kInvalidArgument);
    EXPECT_NE(status.message().find("epoch_ring is 64 on rank 0, but 32 on rank 2"),
              std::string::npos)
        << status.message();
  }
}

TEST_P(NetFaults, EveryRankHearsOfASettingOutOfRange) {
  EngineGroupOptions differing = options();
  differing.config_of = [](int rank) {
    NetConfig config{.has_service_thread = false};
    if (rank == 1) config.window_ops = 6;
    return config;
  };
  const EngineGroup group(differing);
  for (const Status& status : group.statuses()) {
    EXPECT_EQ(status.code(), Errc::kInvalidArgument);
    EXPECT_EQ(status.peer(), 1);
    EXPECT_NE(status.message().find("window_ops = 6 is no power of two"), std::string::npos);
  }
}

TEST(NetConfig, RangesAreChecked) {
  EXPECT_TRUE(fabric::validate({}).ok());
  std::vector<NetConfig> bad(8);
  bad[0].num_contexts = 129;
  bad[1].num_signals = 0;
  bad[2].window_bytes = 0;
  bad[3].arrival_window = 3;
  bad[4].epoch_ring = 512;
  bad[5].part_ring = 1;
  bad[6].heartbeat = std::chrono::milliseconds(0);
  bad[7].num_counters = -1;
  for (const NetConfig& config : bad) {
    EXPECT_EQ(fabric::validate(config).code(), Errc::kInvalidArgument);
  }
}

}  // namespace
}  // namespace ep::test
