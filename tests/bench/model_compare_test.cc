// SPDX-License-Identifier: Apache-2.0
// Differences between what was predicted and what was counted.
#include "bench/model_compare.h"

#include "bench/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace ep::bench {
namespace {

std::vector<RankTraffic<std::int64_t>> predicted_ranks() {
  std::vector<RankTraffic<std::int64_t>> ranks(2);
  ranks[0].rows.sent = {.bytes = 1000, .puts = 2, .signals = 3};
  ranks[0].announcements.sent = {.bytes = 48, .puts = 1, .signals = 1};
  ranks[1].rows.received = {.bytes = 1000, .puts = 2, .signals = 3};
  ranks[1].announcements.received = {.bytes = 48, .puts = 1, .signals = 1};
  return ranks;
}

std::vector<CountedTraffic> equal_counts() {
  std::vector<CountedTraffic> counted(2);
  counted[0].sent = {.bytes = 1048, .puts = 3, .signals = 4};
  counted[1].received = {.bytes = 1048, .puts = 3, .signals = 4};
  return counted;
}

TEST(ModelCompare, EqualCountsAreExact) {
  const auto comparison = compare_traffic(predicted_ranks(), equal_counts());
  ASSERT_TRUE(comparison.ok());
  EXPECT_TRUE(comparison->is_exact());
  EXPECT_EQ(comparison->predicted.bytes, 1048);
  EXPECT_EQ(comparison->counted, comparison->predicted);
  EXPECT_NE(comparison->describe().find("equal on every rank"), std::string::npos);
}

TEST(ModelCompare, EveryDifferenceNamesRankAndFigure) {
  std::vector<CountedTraffic> counted = equal_counts();
  counted[0].sent->bytes += 1;
  counted[1].received->puts -= 1;
  counted[1].received->signals += 2;
  const auto comparison = compare_traffic(predicted_ranks(), counted);
  ASSERT_TRUE(comparison.ok());
  ASSERT_EQ(comparison->differences.size(), 3u);
  EXPECT_EQ(comparison->differences[0].rank, 0);
  EXPECT_STREQ(comparison->differences[0].what, "bytes sent");
  EXPECT_EQ(comparison->differences[0].predicted, 1048);
  EXPECT_EQ(comparison->differences[0].counted, 1049);
  EXPECT_EQ(comparison->differences[1].rank, 1);
  EXPECT_STREQ(comparison->differences[1].what, "puts received");
  EXPECT_STREQ(comparison->differences[2].what, "signals received");
  EXPECT_NE(comparison->describe().find(
                "3 difference(s), first: rank 0 bytes sent: predicted 1048, counted 1049"),
            std::string::npos)
      << comparison->describe();
}

TEST(ModelCompare, OppositeDifferencesDoNotCancel) {
  auto predicted = predicted_ranks();
  predicted[1].rows.sent = {.bytes = 500, .puts = 1, .signals = 1};
  std::vector<CountedTraffic> counted(2);
  counted[0].sent = {.bytes = 1047, .puts = 3, .signals = 4};
  counted[1].sent = {.bytes = 501, .puts = 1, .signals = 1};
  const auto comparison = compare_traffic(predicted, counted);
  ASSERT_TRUE(comparison.ok());
  EXPECT_EQ(comparison->predicted, comparison->counted);
  EXPECT_EQ(comparison->differences.size(), 2u);
}

TEST(ModelCompare, ASideThatNobodyCountsIsNotCompared) {
  const auto comparison = compare_traffic(predicted_ranks(), std::vector<CountedTraffic>(2));
  ASSERT_TRUE(comparison.ok());
  EXPECT_TRUE(comparison->is_exact());
  EXPECT_EQ(comparison->predicted.bytes, 0);
}

TEST(ModelCompare, RefusesAnotherNumberOfRanks) {
  const auto comparison = compare_traffic(predicted_ranks(), std::vector<CountedTraffic>(3));
  ASSERT_FALSE(comparison.ok());
  EXPECT_EQ(comparison.status().code(), Errc::kInvalidArgument);
  EXPECT_NE(comparison.status().message().find("2 ranks predicted, of 3 counted"),
            std::string::npos);
}

/// 10 ranks on nodes of 4, 4 and 2; rows of 32 bytes, 3 choices, some repeated or -1.
constexpr int kRanks = 10;
constexpr int kLsaSize = 4;
constexpr int kExperts = 20;
constexpr int kTopk = 3;
constexpr std::int64_t kRowBytes = 32;
constexpr std::int64_t kMessageBytes = 256;  // and 8 for each choice

Job traced_job() {
  Trace trace = {.num_ranks = kRanks, .num_experts = kExperts, .topk = kTopk, .steps = {{}, {}}};
  int next = 0;
  for (auto& step : trace.steps) {
    for (int rank = 0; rank < kRanks; ++rank) {
      TraceTokens tokens;
      for (int choice = 0; choice < kTopk * (9 * rank % 31); ++choice) {
        next = (next * 7 + 5 + rank) % (kExperts + 3);
        tokens.experts.push_back(next < kExperts ? next : (next == kExperts ? -1 : rank));
        tokens.weights.push_back(1);
      }
      step.push_back(tokens);
    }
  }
  Job job;
  job.trace = std::make_shared<const Trace>(std::move(trace));
  job.options.ranks = kRanks;
  job.options.experts = kExperts;
  job.options.topk = kTopk;
  job.options.lsa_size = kLsaSize;
  job.options.hidden = 16;
  return job;
}

/// What a network would count if every rank did what the protocol says, one put after the other.
class PlainNetwork {
 public:
  PlainNetwork() : sent_(kRanks), received_(kRanks) {}

  void put(int from, int to, std::int64_t bytes) {
    count(from, to, {.bytes = bytes, .puts = 1, .signals = 1});
  }
  void signal(int from, int to) { count(from, to, {.bytes = 0, .puts = 0, .signals = 1}); }

  std::vector<CountedTraffic> counted() const {
    std::vector<CountedTraffic> counted;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      counted.push_back({.sent = sent_[rank], .received = received_[rank]});
    }
    return counted;
  }

 private:
  void count(int from, int to, const NetTraffic<std::int64_t>& traffic) {
    sent_[static_cast<std::size_t>(from)] += traffic;
    received_[static_cast<std::size_t>(to)] += traffic;
  }

  std::vector<NetTraffic<std::int64_t>> sent_;
  std::vector<NetTraffic<std::int64_t>> received_;
};

/// Nodes are 0 to 3, 4 to 7, 8 and 9.
int peer_on(int node, int rank) { return node * kLsaSize + rank % kLsaSize % (node == 2 ? 2 : 4); }

/// Nodes that the tokens [first, first + 8) reach, one entry per token and node.
std::multiset<int> nodes_of(const RankChoices& choices, std::int64_t first) {
  std::multiset<int> all;
  for (std::int64_t token = first; token < std::min(first + 8, choices.num_tokens); ++token) {
    std::set<int> nodes;
    for (int k = 0; k < kTopk; ++k) {
      const auto expert = choices.topk_idx[static_cast<std::size_t>(token * kTopk + k)];
      if (expert >= 0) nodes.insert(static_cast<int>(expert) / 2 / kLsaSize);
    }
    all.insert(nodes.begin(), nodes.end());
  }
  return all;
}

void dispatch_plainly(const RankChoices& choices, int rank, PlainNetwork& net) {
  for (int node = 0; node < 3; ++node) {
    if (node == rank / kLsaSize) continue;
    const int peer = peer_on(node, rank);
    net.put(rank, peer, kMessageBytes + choices.num_tokens * kTopk * 8);
    net.put(rank, peer, kMessageBytes);  // where its rows go
    for (std::int64_t first = 0; first < choices.num_tokens; first += 8) {
      const auto num_rows = static_cast<std::int64_t>(nodes_of(choices, first).count(node));
      if (num_rows == 0) continue;
      net.put(rank, peer, num_rows * kRowBytes);
      net.signal(peer, rank);
    }
  }
}

TEST(ModelCompare, ADispatchDonePutByPutIsWhatIsPredicted) {
  const Job job = traced_job();
  const auto routing = job.make_routing();
  for (const int step : {0, 1}) {
    PlainNetwork net;
    for (int rank = 0; rank < kRanks; ++rank) {
      dispatch_plainly(choices_of(*routing, step, rank), rank, net);
    }
    const auto predicted = predict_step(job, *routing, step, Movement::kDispatch);
    ASSERT_TRUE(predicted.ok());
    const auto comparison = compare_traffic(*predicted, net.counted());
    ASSERT_TRUE(comparison.ok());
    EXPECT_TRUE(comparison->is_exact()) << comparison->describe();
    EXPECT_GT(comparison->counted.puts, 6 * kRanks) << "messages are 4 per rank";
  }
}

}  // namespace
}  // namespace ep::bench
