// SPDX-License-Identifier: Apache-2.0
// The engine over chaos: what signals and flushes promise holds whatever the network does.
#include "fabric/net/net_engine.h"
#include "tests/fabric/chaos/engine_traffic.h"
#include "tests/support/seeds.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <iterator>
#include <limits>
#include <string>

namespace ep::test {
namespace {

using fabric::ArrivalOrder;
using fabric::ChaosDeed;

/// So that numbers of the protocol wrap on the way, each in some seeds.
std::uint64_t first_number(std::uint64_t seed) {
  constexpr std::uint64_t kFirst[] = {0, (1u << 8) - 3, (1u << 14) - 5,
                                      (std::uint64_t{1} << 32) - 5,
                                      std::numeric_limits<std::uint64_t>::max() - 5};
  return kFirst[seed % std::size(kFirst)];
}

class EngineOverChaos : public ::testing::TestWithParam<ArrivalOrder> {};

TEST_P(EngineOverChaos, KeepsEveryPromise) {
  fabric::ChaosCounts counts;
  int num_refused = 0;
  for (const std::uint64_t seed : seeds(scaled_rounds(300, 5000))) {
    EngineTraffic traffic({.seed = seed, .order = GetParam(), .first_number = first_number(seed)});
    ASSERT_TRUE(traffic.net().status().ok()) << traffic.net().status().to_string();
    ASSERT_EQ(traffic.run(), "") << replay_command(seed) << "\n"
                                 << traffic.net().chaos(0).describe();
    counts += traffic.net().counts();
    num_refused += traffic.num_refused();
  }
  EXPECT_GT(num_refused, 0) << "windows were never full";
  for (const ChaosDeed deed : {ChaosDeed::kTorn, ChaosDeed::kBusy, ChaosDeed::kLateArrivals,
                               ChaosDeed::kReorderedCompletions}) {
    EXPECT_GT(counts[deed], 0u) << static_cast<int>(deed);
  }
  EXPECT_EQ(counts[ChaosDeed::kReordered] > 0, GetParam() == ArrivalOrder::kUnordered);
  std::printf("%s\n", counts.to_string().c_str());
}

TEST_P(EngineOverChaos, ASeedIsARun) {
  const auto run = [](std::uint64_t seed) {
    EngineTraffic traffic({.seed = seed, .order = GetParam()});
    EXPECT_EQ(traffic.run(), "");
    std::string text;
    for (int rank = 0; rank < 3; ++rank) text += traffic.net().chaos(rank).describe() + "\n";
    return text;
  };
  for (std::uint64_t seed = 1; seed <= 5; ++seed) EXPECT_EQ(run(seed), run(seed));
  EXPECT_NE(run(1), run(2));
}

INSTANTIATE_TEST_SUITE_P(BothOrders,
                         EngineOverChaos,
                         ::testing::Values(ArrivalOrder::kOrdered, ArrivalOrder::kUnordered),
                         [](const auto& order) { return std::string(name_of(order.param)); });

}  // namespace
}  // namespace ep::test
