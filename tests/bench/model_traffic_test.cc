// SPDX-License-Identifier: Apache-2.0
// Traffic of small routings, against what one counts by hand.
#include "bench/model_traffic.h"

#include "layout/announcement.h"

#include <gtest/gtest.h>

#include <vector>

namespace ep::bench {
namespace {

using Counts = RouteMatrix<std::int64_t>;
using Net = NetTraffic<std::int64_t>;

ExpertMap balanced(int num_experts, int num_ranks) {
  auto map = ExpertMap::balanced(num_experts, num_ranks);
  EXPECT_TRUE(map.ok());
  return std::move(map).value();
}

/// Two nodes of two; rank r has the experts 2 r and 2 r + 1; two choices per token, -1 is none.
Counts count_by_hand(Dedup dedup) {
  const RouteShape shape = {.nodes = Nodes(4, 2), .dedup = dedup, .chunk_tokens = 2};
  RouteCounter counter(shape, balanced(8, 4));
  counter.add(0, std::vector<std::int64_t>{0, 4, 6, 7, 5, 6, -1, 1}, 2);
  counter.add(1, std::vector<std::int64_t>{3, 2, 0, 4}, 2);
  counter.add(2, {}, 2);
  counter.add(3, std::vector<std::int64_t>{0, 2, 7, 6}, 2);
  return counter.routes();
}

/// Rows from each rank to each, row by row.
std::vector<std::int64_t> rows_of(const Counts& routes) {
  std::vector<std::int64_t> rows;
  for (int src = 0; src < routes.shape().nodes.num_ranks(); ++src) {
    for (int dst = 0; dst < routes.shape().nodes.num_ranks(); ++dst) {
      rows.push_back(routes.at(src, dst).rows);
    }
  }
  return rows;
}

std::vector<std::int64_t> chunks_of(const Counts& routes) {
  std::vector<std::int64_t> chunks;
  for (int src = 0; src < routes.shape().nodes.num_ranks(); ++src) {
    for (int dst = 0; dst < routes.shape().nodes.num_ranks(); ++dst) {
      chunks.push_back(routes.at(src, dst).chunks);
    }
  }
  return chunks;
}

/// Rows of 112 bytes with scales, 140 as they are stored, 200 returned; announcements of 480 bytes
/// in a dispatch, 384 in a combine.
WireShape small_wire() {
  return {
      .row_bytes = 100, .scale_bytes = 12, .returned_row_bytes = 200, .topk = 2, .num_columns = 12};
}

TEST(ModelNodes, RanksOfALargerNodeShareThePeersOfASmallerOne) {
  const Nodes nodes(7, 4);
  EXPECT_EQ(nodes.num_nodes(), 2);
  EXPECT_EQ(nodes.map().size_of(0), 4);
  EXPECT_EQ(nodes.map().size_of(1), 3);
  EXPECT_EQ(nodes.map().rail_peer(2, 1), 6);
  EXPECT_EQ(nodes.map().rail_peer(3, 1), 4);
  EXPECT_EQ(nodes.map().rail_peer(6, 0), 2);
  EXPECT_TRUE(nodes.are_together(4, 6));
  EXPECT_FALSE(nodes.are_together(3, 4));
}

TEST(ModelTraffic, WithDedupARowCrossesOnceForEachNode) {
  const Counts routes = count_by_hand(Dedup::kNode);
  EXPECT_EQ(rows_of(routes), (std::vector<std::int64_t>{2, 0, 3, 0,       //
                                                        2, 2, 0, 1,       //
                                                        0, 0, 2, 2,       //
                                                        0, 1, 1, 1}));    //
  EXPECT_EQ(chunks_of(routes), (std::vector<std::int64_t>{0, 0, 2, 0,     //
                                                          0, 0, 0, 1,     //
                                                          0, 0, 0, 0,     //
                                                          0, 1, 0, 0}));  //
  EXPECT_EQ(net_total(routes).rows, 5);
  EXPECT_EQ(net_total(routes).chunks, 4);
}

TEST(ModelTraffic, WithoutDedupARowCrossesOnceForEachRank) {
  const Counts routes = count_by_hand(Dedup::kNone);
  EXPECT_EQ(rows_of(routes), (std::vector<std::int64_t>{2, 0, 2, 2,       //
                                                        1, 1, 1, 0,       //
                                                        0, 0, 0, 0,       //
                                                        1, 1, 0, 1}));    //
  EXPECT_EQ(chunks_of(routes), (std::vector<std::int64_t>{0, 0, 2, 2,     //
                                                          0, 0, 1, 0,     //
                                                          0, 0, 0, 0,     //
                                                          1, 1, 0, 0}));  //
}

TEST(ModelTraffic, SizesAreThoseOfTheLayout) {
  using Ops = Movement;
  WireShape wire = small_wire();
  EXPECT_EQ(wire.net_row_bytes(Dedup::kNode, Ops::kDispatch), 100 + 12);
  EXPECT_EQ(wire.net_row_bytes(Dedup::kNone, Ops::kDispatch), 112 + 2 * 12 + 4);
  EXPECT_EQ(wire.lsa_row_bytes(Ops::kDispatch), 140);
  EXPECT_EQ(wire.net_row_bytes(Dedup::kNode, Ops::kCombine), 200);
  EXPECT_EQ(wire.lsa_row_bytes(Ops::kCombine), 200);
  const std::int64_t fixed = sizeof(layout::AnnouncedOp) + sizeof(layout::AnnouncedBlock);
  EXPECT_EQ(wire.announcement_bytes(Ops::kDispatch), fixed + 12 * 8);
  EXPECT_EQ(wire.announcement_bytes(Ops::kCombine), fixed);
  EXPECT_EQ(wire.message_bytes(Ops::kDispatch, 10), 256 + 10 * 2 * 8) << "ids and weights";
  EXPECT_EQ(wire.message_bytes(Ops::kCombine, 10), 256);
  wire.has_new_ids = false;
  wire.combines_weights = true;
  EXPECT_EQ(wire.message_bytes(Ops::kDispatch, 10), 256 + 10 * 2 * 4);
  EXPECT_EQ(wire.message_bytes(Ops::kCombine, 10), 256 + 10 * 2 * 4);
}

TEST(ModelTraffic, ADispatchWithDedup) {
  const auto ranks = traffic_of(count_by_hand(Dedup::kNode), small_wire(), Movement::kDispatch);
  EXPECT_EQ(ranks[0].rows, (Flow<std::int64_t>{.sent = {.bytes = 3 * 112, .puts = 2, .signals = 2},
                                               .received = {.bytes = 0, .puts = 0, .signals = 2},
                                               .lsa_sent_bytes = 0,
                                               .lsa_received_bytes = 2 * 140}))
      << "credits come back";
  EXPECT_EQ(ranks[1].rows, (Flow<std::int64_t>{.sent = {.bytes = 112, .puts = 1, .signals = 2},
                                               .received = {.bytes = 112, .puts = 1, .signals = 2},
                                               .lsa_sent_bytes = 2 * 140,
                                               .lsa_received_bytes = 0}))
      << "a row of its own and one of rank 3 go on to rank 0";
  EXPECT_EQ(ranks[2].rows,
            (Flow<std::int64_t>{.sent = {.bytes = 0, .puts = 0, .signals = 2},
                                .received = {.bytes = 3 * 112, .puts = 2, .signals = 2},
                                .lsa_sent_bytes = 2 * 140,
                                .lsa_received_bytes = 140}));
  EXPECT_EQ(ranks[3].rows, (Flow<std::int64_t>{.sent = {.bytes = 112, .puts = 1, .signals = 2},
                                               .received = {.bytes = 112, .puts = 1, .signals = 2},
                                               .lsa_sent_bytes = 140,
                                               .lsa_received_bytes = 2 * 140}));
}

TEST(ModelTraffic, ACombineTakesEveryHopBackwards) {
  const auto ranks = traffic_of(count_by_hand(Dedup::kNode), small_wire(), Movement::kCombine);
  EXPECT_EQ(ranks[0].rows,
            (Flow<std::int64_t>{.sent = {.bytes = 0, .puts = 0, .signals = 2},
                                .received = {.bytes = 3 * 200, .puts = 2, .signals = 2},
                                .lsa_sent_bytes = 2 * 200,
                                .lsa_received_bytes = 0}));
  EXPECT_EQ(ranks[2].rows, (Flow<std::int64_t>{.sent = {.bytes = 3 * 200, .puts = 2, .signals = 2},
                                               .received = {.bytes = 0, .puts = 0, .signals = 2},
                                               .lsa_sent_bytes = 200,
                                               .lsa_received_bytes = 2 * 200}))
      << "it reads 2 rows of rank 3 before it returns 3 sums";
}

TEST(ModelTraffic, ADispatchWithoutDedup) {
  const auto ranks = traffic_of(count_by_hand(Dedup::kNone), small_wire(), Movement::kDispatch);
  EXPECT_EQ(ranks[0].rows.sent, (Net{.bytes = 4 * 140, .puts = 4, .signals = 5}));
  EXPECT_EQ(ranks[0].rows.received, (Net{.bytes = 140, .puts = 1, .signals = 5}));
  EXPECT_EQ(ranks[0].rows.lsa_received_bytes, 140);
  EXPECT_EQ(ranks[3].rows.lsa_sent_bytes, 0) << "nothing is passed on";
}

/// Announcements of ranks with 4, 2, 0 and 2 tokens.
TEST(ModelTraffic, MessagesGoToRailPeersAndOnFromThere) {
  const Counts routes = count_by_hand(Dedup::kNode);
  const auto ranks = traffic_of(routes, small_wire(), Movement::kDispatch);
  EXPECT_EQ(ranks[0].announcements,
            (Flow<std::int64_t>{.sent = {.bytes = 256 + 64, .puts = 1, .signals = 1},
                                .received = {.bytes = 256, .puts = 1, .signals = 1},
                                .lsa_sent_bytes = 2 * 480,
                                .lsa_received_bytes = 2 * 480}));
  EXPECT_EQ(ranks[3].announcements.sent, (Net{.bytes = 256 + 32, .puts = 1, .signals = 1}));
  EXPECT_EQ(ranks[3].announcements.received, (Net{.bytes = 256 + 32, .puts = 1, .signals = 1}));
}

TEST(ModelTraffic, LateBlocksTakeAMessageOfTheirOwn) {
  WireShape wire = small_wire();
  wire.has_late_blocks = true;
  const Counts routes = count_by_hand(Dedup::kNode);
  EXPECT_EQ(traffic_of(routes, wire, Movement::kDispatch)[2].announcements.sent,
            (Net{.bytes = 256 + 256, .puts = 2, .signals = 2}));
  EXPECT_EQ(traffic_of(routes, wire, Movement::kCombine)[2].announcements.sent,
            (Net{.bytes = 256, .puts = 1, .signals = 1}));
}

TEST(ModelTraffic, WithoutDedupAnnouncementsGoToEveryRank) {
  for (const auto& rank :
       traffic_of(count_by_hand(Dedup::kNone), small_wire(), Movement::kCombine)) {
    EXPECT_EQ(rank.announcements.sent, (Net{.bytes = 2 * 384, .puts = 2, .signals = 2}));
    EXPECT_EQ(rank.announcements.lsa_sent_bytes, 384);
  }
}

TEST(ModelTraffic, TheBusiestLinkIsOnePairOfRanks) {
  const Counts routes = count_by_hand(Dedup::kNode);
  EXPECT_EQ(busiest_link(routes, small_wire(), Movement::kDispatch),
            (Net{.bytes = 3 * 112, .puts = 2, .signals = 2}));
  EXPECT_EQ(busiest_link(routes, small_wire(), Movement::kCombine).bytes, 3 * 200);
}

TEST(ModelTraffic, EveryBytePutIsReceivedInNodesOfAnySize) {
  const auto routing = make_random_routing(
      {.num_ranks = 7, .num_tokens = 33, .topk = 3, .num_experts = 11, .seed = 4});
  for (const Dedup dedup : {Dedup::kNode, Dedup::kNone}) {
    const RouteShape shape = {.nodes = Nodes(7, 3), .dedup = dedup};
    const Counts routes = count_routes(*routing, 0, shape, balanced(11, 7));
    for (const Movement movement : {Movement::kDispatch, Movement::kCombine}) {
      Flow<std::int64_t> all;
      for (const auto& rank : traffic_of(routes, small_wire(), movement)) all += rank.total();
      EXPECT_EQ(all.sent, all.received);
      EXPECT_EQ(all.lsa_sent_bytes, all.lsa_received_bytes);
      EXPECT_GT(all.sent.bytes, 0);
    }
  }
}

TEST(ModelTraffic, OneNodeUsesNoNetwork) {
  const auto routing = make_random_routing(
      {.num_ranks = 3, .num_tokens = 20, .topk = 2, .num_experts = 6, .seed = 4});
  const RouteShape shape = {.nodes = Nodes(3, 8)};
  const Counts routes = count_routes(*routing, 0, shape, balanced(6, 3));
  for (const auto& rank : traffic_of(routes, small_wire(), Movement::kDispatch)) {
    EXPECT_EQ(rank.total().sent, Net());
    EXPECT_GT(rank.rows.lsa_sent_bytes, 0);
  }
}

}  // namespace
}  // namespace ep::bench
