// SPDX-License-Identifier: Apache-2.0
// Choices of experts, and the rows that go with them.
#include "bench/routing.h"

#include "bench/hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <vector>

namespace ep::bench {
namespace {

constexpr RoutingConfig kConfig = {
    .num_ranks = 2, .num_tokens = 200, .topk = 4, .num_experts = 9, .seed = 5, .exact = false};
constexpr RowFormat kFormat = {.dtype = DType::kBf16, .hidden = 64, .exact = false};

std::shared_ptr<const Text> sample_text() {
  auto text = Text::from_string("t", "the cat and the dog and the bird");
  EXPECT_TRUE(text.ok());
  return std::make_shared<const Text>(std::move(text).value());
}

std::set<std::int64_t> experts_of(const RankChoices& choices, std::size_t token, std::size_t topk) {
  const auto first = choices.topk_idx.begin() + static_cast<std::ptrdiff_t>(token * topk);
  return {first, first + static_cast<std::ptrdiff_t>(topk)};
}

TEST(BenchRouting, RandomExpertsOfATokenDifferAndAreInRange) {
  const auto routing = make_random_routing(kConfig);
  const RankChoices choices = choices_of(*routing, 3, 1);
  ASSERT_EQ(choices.num_tokens, 200);
  std::set<std::int64_t> all;
  for (std::size_t token = 0; token < 200; ++token) {
    const auto experts = experts_of(choices, token, 4);
    EXPECT_EQ(experts.size(), 4u);
    EXPECT_GE(*experts.begin(), 0);
    EXPECT_LT(*experts.rbegin(), 9);
    all.insert(experts.begin(), experts.end());
  }
  EXPECT_EQ(all.size(), 9u) << "every expert is chosen sometimes";
}

/// How often each expert is chosen by 2,000 tokens.
std::vector<int> zipf_loads(double exponent, int topk, std::uint64_t seed) {
  const auto routing = make_zipf_routing(
      {.num_ranks = 1, .num_tokens = 2000, .topk = topk, .num_experts = 9, .seed = seed}, exponent);
  std::vector<int> loads(9, 0);
  for (const std::int64_t expert : choices_of(*routing, 0, 0).topk_idx) {
    ++loads[static_cast<std::size_t>(expert)];
  }
  return loads;
}

TEST(BenchRouting, ZipfExpertsOfATokenDifferAndAreInRange) {
  for (const double exponent : {0.0, 1.0, 8.0}) {
    const auto routing = make_zipf_routing(kConfig, exponent);
    const RankChoices choices = choices_of(*routing, 0, 1);
    for (std::size_t token = 0; token < 200; ++token) {
      const auto experts = experts_of(choices, token, 4);
      EXPECT_EQ(experts.size(), 4u);
      EXPECT_GE(*experts.begin(), 0);
      EXPECT_LT(*experts.rbegin(), 9);
    }
  }
}

TEST(BenchRouting, ZipfLoadsFollowThePowerLaw) {
  constexpr double kTokens = 2000;
  std::vector<int> loads = zipf_loads(1, 1, 3);
  std::sort(loads.begin(), loads.end(), std::greater<>());
  double sum = 0;
  for (int place = 1; place <= 9; ++place) sum += 1.0 / place;
  for (int place = 1; place <= 9; ++place) {
    const double mean = kTokens / (place * sum);
    EXPECT_NEAR(loads[static_cast<std::size_t>(place - 1)], mean, 4 * std::sqrt(mean)) << place;
  }
}

TEST(BenchRouting, ZipfDrawsTheSecondChoiceByTheWeightsThatAreLeft) {
  std::vector<int> loads = zipf_loads(1, 2, 3);
  std::sort(loads.begin(), loads.end(), std::greater<>());
  double sum = 0;
  for (int place = 1; place <= 9; ++place) sum += 1.0 / place;
  double chance = 1 / sum;  // the most popular one first, or second after another one
  for (int place = 2; place <= 9; ++place) {
    const double first = 1 / (place * sum);
    chance += first * (1 / sum) / (1 - first);
  }
  EXPECT_NEAR(loads[0], 2000 * chance, 4 * std::sqrt(2000 * chance * (1 - chance)));
}

TEST(BenchRouting, WhichExpertsArePopularDependsOnTheSeed) {
  const auto most_popular = [](std::uint64_t seed) {
    const std::vector<int> loads = zipf_loads(2, 1, seed);
    return std::max_element(loads.begin(), loads.end()) - loads.begin();
  };
  std::set<std::ptrdiff_t> experts;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) experts.insert(most_popular(seed));
  EXPECT_GT(experts.size(), 2u);
}

TEST(BenchRouting, EveryRankComputesTheSame) {
  const auto mine = make_random_routing(kConfig);
  const auto yours = make_random_routing(kConfig);
  EXPECT_EQ(choices_of(*mine, 0, 1).topk_idx, choices_of(*yours, 0, 1).topk_idx);
  EXPECT_NE(choices_of(*mine, 0, 1).topk_idx, choices_of(*mine, 0, 0).topk_idx);
  EXPECT_NE(choices_of(*mine, 0, 1).topk_idx, choices_of(*mine, 1, 1).topk_idx);
}

TEST(BenchRouting, AWordGoesToTheSameExpertsWhereverItStands) {
  const auto routing = make_text_routing(kConfig, kFormat, sample_text());
  const RankChoices choices = choices_of(*routing, 0, 0);
  EXPECT_EQ(experts_of(choices, 0, 4), experts_of(choices, 3, 4)) << "the, the";
  EXPECT_EQ(experts_of(choices, 0, 4), experts_of(choices, 8, 4)) << "the text starts again";
  EXPECT_NE(experts_of(choices, 1, 4), experts_of(choices, 4, 4)) << "cat, dog";
}

TEST(BenchRouting, RouterWeightsAreASoftmax) {
  const auto routing = make_text_routing(kConfig, kFormat, sample_text());
  const RankChoices choices = choices_of(*routing, 0, 0);
  for (std::size_t first = 0; first < choices.topk_weights.size(); first += 4) {
    const auto begin = choices.topk_weights.begin() + static_cast<std::ptrdiff_t>(first);
    EXPECT_NEAR(std::accumulate(begin, begin + 4, 0.0F), 1.0F, 1e-6F);
    EXPECT_TRUE(std::is_sorted(begin, begin + 4, std::greater<>()));
  }
}

TEST(BenchRouting, RanksAndStepsContinueTheText) {
  RoutingConfig config = kConfig;
  config.num_tokens = 3;
  const auto routing = make_text_routing(config, kFormat, sample_text());
  const RowKey fourth_word = routing->row_key(0, 1, 0);
  EXPECT_EQ(fourth_word.content, routing->row_key(0, 0, 0).content) << "the, the";
  EXPECT_NE(fourth_word.name, routing->row_key(0, 0, 0).name);
  EXPECT_EQ(routing->row_key(1, 0, 0).content, routing->row_key(0, 0, 0).content) << "seventh: the";
}

TEST(BenchRouting, ExactWeightsArePowersOfTwo) {
  RoutingConfig config = kConfig;
  config.exact = true;
  const auto routing = make_random_routing(config);
  const RankChoices choices = choices_of(*routing, 0, 0);
  std::set<float> weights(choices.topk_weights.begin(), choices.topk_weights.end());
  EXPECT_EQ(weights, (std::set<float>{1.0F, 2.0F}));
}

TEST(BenchRouting, ARecordedTraceReplaysTheChoices) {
  const auto routing = make_text_routing(kConfig, kFormat, sample_text());
  const auto trace = std::make_shared<const Trace>(record_trace(*routing, 2));
  const auto replay = make_trace_routing(kConfig, trace);
  EXPECT_EQ(replay->num_recorded_steps(), 2);
  for (int step = 0; step < 2; ++step) {
    EXPECT_EQ(choices_of(*replay, step, 1).topk_idx, choices_of(*routing, step, 1).topk_idx);
    EXPECT_EQ(choices_of(*replay, step, 1).topk_weights,
              choices_of(*routing, step, 1).topk_weights);
  }
}

TEST(BenchRouting, RepeatsOfAnExpertAreOneWithTheSumOfWeightsInKOrder) {
  std::vector<WeightedExpert> distinct;
  const std::vector<std::int64_t> experts = {7, -1, 2, 7, 2, 7};
  const std::vector<float> weights = {1.0F, 9.0F, 0.5F, 1e-8F, 0.25F, 1e-8F};
  distinct_experts(experts, weights, distinct);
  ASSERT_EQ(distinct.size(), 2u);
  EXPECT_EQ(distinct[0].expert, 7);
  EXPECT_EQ(distinct[0].first_k, 0);
  EXPECT_EQ(distinct[0].weight, (1.0F + 1e-8F) + 1e-8F);
  EXPECT_EQ(distinct[1].expert, 2);
  EXPECT_EQ(distinct[1].first_k, 2);
  EXPECT_EQ(distinct[1].weight, 0.75F);
}

TEST(BenchRows, NoTwoTokensHaveTheSameRow) {
  const auto routing = make_text_routing(kConfig, kFormat, sample_text());
  RowSource source(kFormat);
  std::set<std::vector<std::byte>> rows;
  for (int rank = 0; rank < 2; ++rank) {
    for (std::int64_t token = 0; token < 200; ++token) {
      std::vector<std::byte> row(kFormat.row_bytes());
      source.fill(routing->row_key(0, rank, token), row, {});
      rows.insert(row);
    }
  }
  EXPECT_EQ(rows.size(), 400u);
}

TEST(BenchRows, ElementsAreInTheirRangeAndOfBothSigns) {
  for (DType dtype : {DType::kBf16, DType::kFp16, DType::kFp32, DType::kFp8E4M3, DType::kInt8}) {
    for (bool is_exact : {false, true}) {
      const RowFormat format = {.dtype = dtype, .hidden = 272, .exact = is_exact};
      RowSource source(format);
      std::vector<std::byte> row(format.row_bytes());
      std::vector<float> scales(format.num_scales());
      source.fill({.content = 1, .name = 2}, row, scales);
      std::vector<float> values(272);
      widen_row({.dtype = dtype, .bytes = row, .scales = scales}, values);
      const auto [low, high] = std::minmax_element(values.begin(), values.end());
      EXPECT_LT(*low, 0) << name_of(dtype);
      EXPECT_GT(*high, 0) << name_of(dtype);
      EXPECT_LE(*high, is_exact ? kMaxExactElem : 1) << name_of(dtype);
      if (is_exact) {
        EXPECT_TRUE(std::all_of(values.begin(), values.end(),
                                [](float value) { return value == std::nearbyint(value); }));
      }
    }
  }
}

}  // namespace
}  // namespace ep::bench
