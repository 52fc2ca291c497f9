// SPDX-License-Identifier: Apache-2.0
// Puts, signals, gets and flushes of the engine, on both kinds of network.
#include "fabric/net/net_engine.h"

#include "fabric/net/host_net.h"
#include "tests/fabric/net/engine_group.h"
#include "tests/fabric/net/shuffled_transport.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

namespace ep::test {
namespace {

using fabric::ArrivalOrder;
using fabric::FlushScope;
using fabric::NetEngine;
using fabric::WindowPlace;
using primitives::NetSignal;
using primitives::SignalStrength;

constexpr std::int64_t kWord = sizeof(std::uint64_t);

NetSignal strong(std::uint32_t slot, std::uint64_t add = 1) {
  return {.strength = SignalStrength::kStrong, .slot = slot, .add = add};
}
NetSignal weak(std::uint32_t slot, std::uint64_t add = 1) {
  return {.strength = SignalStrength::kWeak, .slot = slot, .add = add};
}

NetEngine::Put words_put(int peer, std::int64_t at, std::int64_t count, const NetSignal& signal) {
  return {.peer = peer,
          .dst = {.offset = at * kWord},
          .src = {.offset = at * kWord},
          .bytes = count * kWord,
          .signal = signal};
}

class OnBothNetworks : public testing::TestWithParam<ArrivalOrder> {
 protected:
  static EngineGroupOptions options() {
    EngineGroupOptions options;
    options.traits.order = GetParam();
    options.traits.num_contexts = 2;
    options.config.num_contexts = 2;
    return options;
  }
};

INSTANTIATE_TEST_SUITE_P(NetEngine,
                         OnBothNetworks,
                         testing::Values(ArrivalOrder::kOrdered, ArrivalOrder::kUnordered),
                         [](const auto& order) { return std::string(name_of(order.param)); });

TEST_P(OnBothNetworks, PutWithASignalIsSeen) {
  EngineGroup group(options());
  ASSERT_TRUE(group.is_fine()) << group.statuses()[0].to_string();
  for (const NetSignal& signal : {strong(3), weak(4), strong(5, 1000), weak(6, 77)}) {
    group.words(0)[signal.slot] = signal.slot * 11;
    ASSERT_TRUE(group.engine(0).try_put(1, words_put(1, signal.slot, 1, signal)));
    EXPECT_TRUE(
        group.drive_until([&] { return group.engine(1).signal_value(signal.slot) == signal.add; }));
    EXPECT_EQ(group.words(1)[signal.slot], signal.slot * 11);
  }
  EXPECT_TRUE(group.engine(0).failure().ok());
  EXPECT_TRUE(group.engine(1).failure().ok());
}

TEST_P(OnBothNetworks, LargePutsAreCutAndCovered) {
  EngineGroupOptions cut = options();
  cut.traits.max_write_bytes = 280;
  EngineGroup group(cut);
  ASSERT_TRUE(group.is_fine());
  for (std::int64_t i = 0; i < 200; ++i) group.words(0)[static_cast<std::size_t>(i)] = 7;
  ASSERT_TRUE(group.engine(0).try_put(0, words_put(1, 0, 100, weak(1))));
  ASSERT_TRUE(group.engine(0).try_put(0, words_put(1, 100, 100, strong(2))));
  ASSERT_TRUE(group.drive_until([&] { return group.engine(1).signal_value(2) == 1; }));
  EXPECT_EQ(group.engine(1).signal_value(1), 1U);
  for (std::int64_t i = 0; i < 200; ++i) EXPECT_EQ(group.words(1)[static_cast<std::size_t>(i)], 7U);
}

TEST_P(OnBothNetworks, ValuesAndBareSignalsArrive) {
  EngineGroup group(options());
  ASSERT_TRUE(group.is_fine());
  NetEngine& engine = group.engine(0);
  ASSERT_TRUE(engine.try_put_value(0, 1, {.offset = 16}, 0x1234567890abcdef, strong(0)));
  ASSERT_TRUE(engine.try_signal(0, 1, weak(1)));
  ASSERT_TRUE(engine.try_signal(0, 1, weak(2, 500)));
  ASSERT_TRUE(engine.try_signal(0, 1, strong(3, 9)));
  EXPECT_TRUE(group.drive_until([&] { return group.engine(1).signal_value(3) == 9; }));
  EXPECT_EQ(group.engine(1).signal_value(0), 1U);
  EXPECT_EQ(group.engine(1).signal_value(1), 1U);
  EXPECT_EQ(group.engine(1).signal_value(2), 500U);
  EXPECT_EQ(group.words(1)[2], 0x1234567890abcdefU);
}

TEST_P(OnBothNetworks, GetsCount) {
  EngineGroupOptions cut = options();
  cut.traits.max_write_bytes = 280;
  EngineGroup group(cut);
  ASSERT_TRUE(group.is_fine());
  group.words(1)[50] = 51;
  ASSERT_TRUE(group.engine(0).try_get(
      0,
      {.peer = 1, .dst = {.offset = 0}, .src = {.offset = 0}, .bytes = 100 * kWord, .counter = 2}));
  EXPECT_EQ(group.engine(0).counter_value(2), 0U);
  EXPECT_TRUE(group.drive_until([&] { return group.engine(0).counter_value(2) == 1; }));
  EXPECT_EQ(group.words(0)[50], 51U);
}

TEST_P(OnBothNetworks, FlushesSayWhatIsOver) {
  EngineGroup group(options());
  ASSERT_TRUE(group.is_fine());
  NetEngine& engine = group.engine(0);
  EXPECT_TRUE(engine.is_flushed(0));
  group.words(0)[9] = 9;
  ASSERT_TRUE(engine.try_put(0, words_put(1, 9, 1, {})));
  EXPECT_FALSE(engine.is_flushed(0));
  EXPECT_TRUE(engine.is_flushed(1));
  ASSERT_TRUE(engine.try_start_flush(0));
  EXPECT_FALSE(engine.is_remote_flushed(0));
  ASSERT_TRUE(group.drive_until([&] { return engine.is_remote_flushed(0); }));
  EXPECT_EQ(group.words(1)[9], 9U);
  EXPECT_TRUE(group.drive_until([&] { return engine.is_flushed(0); }));
}

TEST_P(OnBothNetworks, PlansWhatItAllocates) {
  EngineGroupOptions many = options();
  many.num_ranks = 3;
  many.config.epoch_ring = 16;
  many.config.part_ring = 128;
  many.config.window_ops = 32;
  EngineGroup group(many);
  ASSERT_TRUE(group.is_fine());
  EXPECT_EQ(group.engine(1).allocated(), NetEngine::plan(many.config, 3));
  EXPECT_GT(group.engine(1).allocated().total_bytes(), 0);
}

TEST_P(OnBothNetworks, RolesUseItAsNet) {
  EngineGroup group(options());
  ASSERT_TRUE(group.is_fine());
  const auto check = [&group]<class Net>(Net net, const Net& peer) {
    group.words(0)[1] = 42;
    ASSERT_TRUE(net.try_put(
        1, {.peer = 1, .dst_offset = 16, .src_offset = 8, .bytes = 8, .signal = strong(7)}));
    EXPECT_TRUE(group.drive_until([&] { return peer.signal_value(7) == 1 && net.is_flushed(1); }));
    EXPECT_EQ(group.words(1)[2], 42U);
  };
  if (GetParam() == ArrivalOrder::kOrdered) {
    check(fabric::HostNet<ArrivalOrder::kOrdered>(group.engine(0)),
          fabric::HostNet<ArrivalOrder::kOrdered>(group.engine(1)));
  } else {
    check(fabric::HostNet<ArrivalOrder::kUnordered>(group.engine(0)),
          fabric::HostNet<ArrivalOrder::kUnordered>(group.engine(1)));
  }
}

}  // namespace
}  // namespace ep::test
