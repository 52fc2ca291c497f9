// SPDX-License-Identifier: Apache-2.0
// The estimate of time: small cases by hand, and what was measured inside one node.
#include "bench/model_time.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ep::bench {
namespace {

using Ranks = std::vector<RankTraffic<std::int64_t>>;

constexpr LinkCosts kCosts = {.message_us = 2,
                              .net_gbps = 10,
                              .net_latency_us = 7,
                              .push_gbps = 100,
                              .pull_gbps = 50,
                              .flag_us = 1,
                              .fixed_us = 20};

TEST(ModelTime, TheSlowestDirectionOfTheSlowestRankCounts) {
  Ranks ranks(3);
  ranks[0].rows.sent = {.bytes = 100'000, .puts = 1, .signals = 1};      // 10 + 2 us
  ranks[1].rows.received = {.bytes = 60'000, .puts = 3, .signals = 10};  // 6 + 20 us
  ranks[2].rows.lsa_sent_bytes = 500'000;                                // 5 us
  const TimeEstimate time = estimate_time(ranks, kCosts, Movement::kDispatch, 10'000);
  EXPECT_DOUBLE_EQ(time.net_bytes_us, 6);
  EXPECT_DOUBLE_EQ(time.net_messages_us, 20);
  EXPECT_DOUBLE_EQ(time.lsa_us, 5);
  EXPECT_DOUBLE_EQ(time.latency_us, 20 + 1 + 7 + 1) << "fixed, the first chunk, its way";
  EXPECT_DOUBLE_EQ(time.total_us(), 26 + 29);
}

TEST(ModelTime, AnnouncementsComeBeforeRows) {
  Ranks ranks(2);
  ranks[1].announcements.sent = {.bytes = 30'000, .puts = 2, .signals = 2};  // 3 + 4 us
  ranks[1].announcements.lsa_sent_bytes = 1'000'000;  // small beside rows: not charged
  const TimeEstimate time = estimate_time(ranks, kCosts, Movement::kDispatch, 0);
  EXPECT_DOUBLE_EQ(time.total_us(), 20 + 7 + 7 + 1);
  EXPECT_EQ(time.bound(), Bound::kLatency);
}

TEST(ModelTime, ACombinePulls) {
  Ranks ranks(1);
  ranks[0].rows.lsa_received_bytes = 5'000'000;
  EXPECT_DOUBLE_EQ(estimate_time(ranks, kCosts, Movement::kCombine, 0).lsa_us, 100);
  EXPECT_DOUBLE_EQ(estimate_time(ranks, kCosts, Movement::kDispatch, 0).lsa_us, 50);
}

TEST(ModelTime, NamesTheTermThatDominates) {
  const auto bound_of = [](const TimeEstimate& time) { return std::string(name_of(time.bound())); };
  EXPECT_EQ(bound_of({.net_bytes_us = 5, .net_messages_us = 4, .lsa_us = 8, .latency_us = 8}),
            "net_bytes");
  EXPECT_EQ(bound_of({.net_bytes_us = 4, .net_messages_us = 5, .lsa_us = 8, .latency_us = 8}),
            "net_messages");
  EXPECT_EQ(bound_of({.net_bytes_us = 4, .net_messages_us = 5, .lsa_us = 10, .latency_us = 8}),
            "lsa_bytes");
  EXPECT_EQ(bound_of({.net_bytes_us = 4, .net_messages_us = 5, .lsa_us = 8, .latency_us = 10}),
            "latency");
}

/// The figures of docs/tuning.md: two H200s, T 4,096, H 7,168, top-8 of 256, bf16.
TEST(ModelTime, InsideANodeItIsWhatWasMeasured) {
  constexpr std::int64_t kTokens = 4096;
  constexpr std::int64_t kRowBytes = 7168 * 2;
  constexpr double kDispatchMicros = 193;
  constexpr double kCombineMicros = 201;
  const auto routing = make_random_routing(
      {.num_ranks = 2, .num_tokens = kTokens, .topk = 8, .num_experts = 256, .seed = 1});
  const auto experts = ExpertMap::balanced(256, 2);
  ASSERT_TRUE(experts.ok());
  const auto routes = count_routes(*routing, 0, {.nodes = Nodes(2, 2)}, *experts);
  const WireShape wire = {
      .row_bytes = kRowBytes, .returned_row_bytes = kRowBytes, .topk = 8, .num_columns = 258};
  for (const auto& [movement, measured] : {std::pair(Movement::kDispatch, kDispatchMicros),
                                           std::pair(Movement::kCombine, kCombineMicros)}) {
    const auto ranks = traffic_of(routes, wire, movement);
    EXPECT_NEAR(estimate_time(ranks, LinkCosts(), movement, 0).total_us(), measured,
                0.03 * measured);
  }
}

}  // namespace
}  // namespace ep::bench
