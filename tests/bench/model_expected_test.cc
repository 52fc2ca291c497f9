// SPDX-License-Identifier: Apache-2.0
// The closed form against enumeration, and against counting with a stated error.
#include "bench/model_expected.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>

namespace ep::bench {
namespace {

/// Chance per comparison below 1e-6 for a normal variable; all seeds are fixed.
constexpr double kMaxErrors = 5;

ExpertMap balanced(int num_experts, int num_ranks) {
  auto map = ExpertMap::balanced(num_experts, num_ranks);
  EXPECT_TRUE(map.ok());
  return std::move(map).value();
}

TEST(ModelExpected, AMissIsHypergeometric) {
  EXPECT_DOUBLE_EQ(miss_chance(6, 2, 3), 3.0 / 15) << "C(3, 2) of C(6, 2)";
  EXPECT_DOUBLE_EQ(miss_chance(6, 2, 0), 1);
  EXPECT_DOUBLE_EQ(miss_chance(6, 2, 5), 0);
  EXPECT_DOUBLE_EQ(miss_chance(6, 6, 1), 0);
}

/// Holders of the experts {0}, {1, 2} and {3, 4, 5} that a set of experts reaches.
int reached(unsigned set) {
  return ((set & 0b000001U) != 0 ? 1 : 0) + ((set & 0b000110U) != 0 ? 1 : 0) +
         ((set & 0b111000U) != 0 ? 1 : 0);
}

TEST(ModelExpected, MomentsEqualThoseOfAllSets) {
  constexpr std::array kHeld = {1, 2, 3};
  for (const int topk : {1, 2, 3, 5}) {
    double num = 0;
    double sum = 0;
    double squares = 0;
    for (unsigned set = 0; set < 64; ++set) {
      if (std::popcount(set) != topk) continue;
      num += 1;
      sum += reached(set);
      squares += reached(set) * reached(set);
    }
    const Moments moments = holders_reached(kHeld, 6, topk, 1);
    EXPECT_NEAR(moments.mean, sum / num, 1e-12) << topk;
    EXPECT_NEAR(moments.variance, squares / num - sum * sum / (num * num), 1e-12) << topk;
  }
}

TEST(ModelExpected, MomentsOfTwoTokensEqualThoseOfAllPairsOfSets) {
  constexpr std::array kHeld = {1, 2, 3};
  double num = 0;
  double sum = 0;
  double squares = 0;
  for (unsigned a = 0; a < 64; ++a) {
    for (unsigned b = 0; b < 64; ++b) {
      if (std::popcount(a) != 2 || std::popcount(b) != 2) continue;
      num += 1;
      sum += reached(a | b);
      squares += reached(a | b) * reached(a | b);
    }
  }
  const Moments moments = holders_reached(kHeld, 6, 2, 2);
  EXPECT_NEAR(moments.mean, sum / num, 1e-12);
  EXPECT_NEAR(moments.variance, squares / num - sum * sum / (num * num), 1e-12);
}

struct Case {
  Nodes nodes;
  Dedup dedup;
  int num_experts;
};

class ModelExpectedCase : public testing::TestWithParam<Case> {
 protected:
  static constexpr UniformTokens kTokens = {.num_tokens = 203, .topk = 4};  // 25 chunks and 3 left

  RouteShape shape() const {
    return {.nodes = GetParam().nodes, .dedup = GetParam().dedup, .chunk_tokens = 8};
  }
  ExpertMap experts() const {
    return balanced(GetParam().num_experts, GetParam().nodes.num_ranks());
  }
  RouteMatrix<std::int64_t> counted() const {
    const auto routing = make_random_routing({.num_ranks = GetParam().nodes.num_ranks(),
                                              .num_tokens = kTokens.num_tokens,
                                              .topk = kTokens.topk,
                                              .num_experts = GetParam().num_experts,
                                              .seed = 7});
    return count_routes(*routing, 0, shape(), experts());
  }
};

TEST_P(ModelExpectedCase, TotalsAgreeWithCounting) {
  const RouteCount<std::int64_t> net = net_total(counted());
  const NetMoments expected = expected_net(shape(), experts(), kTokens);
  EXPECT_NEAR(static_cast<double>(net.rows), expected.rows.mean,
              kMaxErrors * std::sqrt(expected.rows.variance));
  EXPECT_NEAR(static_cast<double>(net.chunks), expected.chunks.mean,
              kMaxErrors * std::sqrt(expected.chunks.variance));
  EXPECT_LT(kMaxErrors * std::sqrt(expected.rows.variance), 0.03 * expected.rows.mean)
      << "the error must be small enough to see a wrong formula";
}

TEST_P(ModelExpectedCase, EveryPairOfRanksAgreesWithCounting) {
  const RouteMatrix<std::int64_t> routes = counted();
  const RouteMatrix<double> expected = expected_routes(shape(), experts(), kTokens);
  // Sums of independent events: the variance is at most the mean.
  const auto error_of = [](double mean) { return kMaxErrors * std::sqrt(mean) + 1e-9; };
  for (int src = 0; src < GetParam().nodes.num_ranks(); ++src) {
    for (int dst = 0; dst < GetParam().nodes.num_ranks(); ++dst) {
      const RouteCount<double>& mean = expected.at(src, dst);
      const RouteCount<std::int64_t>& count = routes.at(src, dst);
      EXPECT_NEAR(static_cast<double>(count.rows), mean.rows, error_of(mean.rows));
      EXPECT_NEAR(static_cast<double>(count.chunks), mean.chunks, error_of(mean.chunks));
    }
  }
}

TEST_P(ModelExpectedCase, PairsSumUpToTheTotals) {
  const RouteCount<double> sum = net_total(expected_routes(shape(), experts(), kTokens));
  const NetMoments expected = expected_net(shape(), experts(), kTokens);
  EXPECT_NEAR(sum.rows, expected.rows.mean, 1e-6);
  EXPECT_NEAR(sum.chunks, expected.chunks.mean, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(All,
                         ModelExpectedCase,
                         testing::Values(Case{Nodes(32, 8), Dedup::kNode, 64},
                                         Case{Nodes(32, 8), Dedup::kNone, 64},
                                         Case{Nodes(23, 5), Dedup::kNode, 50},
                                         Case{Nodes(23, 5), Dedup::kNone, 50},
                                         Case{Nodes(16, 4), Dedup::kNode, 9},
                                         Case{Nodes(16, 4), Dedup::kNone, 9}));

}  // namespace
}  // namespace ep::bench
