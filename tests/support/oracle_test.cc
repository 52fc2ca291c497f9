// SPDX-License-Identifier: Apache-2.0
// Tests of the oracle: small cases worked out by hand, and what must hold for every routing.
#include "tests/support/oracle.h"

#include "tests/support/arbitrary_problem.h"
#include "tests/support/number_formats.h"
#include "tests/support/property.h"
#include "tests/support/row_values.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <tuple>

namespace ep::test {
namespace {

using Row = std::tuple<int, std::int64_t, int, bool>;

// Rank 0 owns experts 0 and 2, rank 1 owns expert 1; rank 0 has two tokens, rank 1 has one.
Problem small_problem(Layout layout) {
  Problem problem;
  problem.routing.topk = 3;
  problem.routing.expert_to_rank = {0, 1, 0};
  problem.routing.ranks = {
      {.num_tokens = 2, .topk_idx = {2, 1, 2, -1, 0, 2}, .topk_weights = {1, 2, 4, 8, 16, 32}},
      {.num_tokens = 1, .topk_idx = {2, -1, -1}, .topk_weights = {64, 128, 256}}};
  problem.layout = layout;
  return problem;
}

std::vector<Row> rows_of(const Oracle& oracle, int rank) {
  std::vector<Row> rows;
  for (const ExpectedRow& row : oracle.rank(rank).rows) {
    rows.emplace_back(row.src_rank, row.token, row.expert, row.is_padding);
  }
  return rows;
}

TEST(Oracle, FlatHasOneRowPerTokenAndRank) {
  const Oracle oracle(small_problem(Layout::kFlat));
  EXPECT_EQ(rows_of(oracle, 0),
            (std::vector<Row>{{0, 0, -1, false}, {0, 1, -1, false}, {1, 0, -1, false}}));
  EXPECT_EQ(rows_of(oracle, 1), (std::vector<Row>{{0, 0, -1, false}}));
  EXPECT_EQ(oracle.rank(0).expert_counts, (std::vector<std::int64_t>{1, 3}));
  EXPECT_EQ(oracle.rank(1).expert_counts, (std::vector<std::int64_t>{1}));
}

TEST(Oracle, ExpertMajorGroupsByLocalExpertAndPads) {
  Problem problem = small_problem(Layout::kExpertMajor);
  problem.alignment = 2;
  const Oracle oracle(problem);
  EXPECT_EQ(rows_of(oracle, 0), (std::vector<Row>{{0, 1, 0, false},
                                                  {0, 0, 0, true},
                                                  {0, 0, 2, false},
                                                  {0, 1, 2, false},
                                                  {1, 0, 2, false},
                                                  {0, 0, 2, true}}));
  EXPECT_EQ(oracle.rank(0).expert_offsets, (std::vector<std::int64_t>{0, 2, 6}));
  EXPECT_EQ(oracle.rank(1).expert_offsets, (std::vector<std::int64_t>{0, 2}));
}

TEST(Oracle, RepeatsShareARowAndSumTheirWeights) {
  const Oracle oracle(small_problem(Layout::kExpertMajor));
  const auto first = oracle.place_of(0, 0, 0);
  const auto repeat = oracle.place_of(0, 0, 2);
  ASSERT_TRUE(first && repeat);
  EXPECT_EQ(first->row, repeat->row);
  EXPECT_FALSE(first->is_repeat());
  EXPECT_TRUE(repeat->is_repeat());
  EXPECT_EQ(oracle.summed_weight(0, 0, 0), 5.0F);
  EXPECT_FALSE(oracle.place_of(0, 1, 0));
}

TEST(Oracle, RowsAtOrBehindTheCapacityAreDropped) {
  Problem problem = small_problem(Layout::kFlat);
  problem.capacity = {2, std::nullopt};
  const Oracle oracle(problem);
  EXPECT_EQ(oracle.rank(0).num_needed(), 3);
  EXPECT_EQ(oracle.rank(0).num_kept(), 2);
  EXPECT_FALSE(oracle.place_of(0, 1, 1)->is_dropped);
  EXPECT_TRUE(oracle.place_of(1, 0, 0)->is_dropped);
}

float combined(const Oracle& oracle, CombineProblem combine, int rank, std::int64_t token) {
  combine.dtype = DType::kFp32;
  combine.hidden = 4;
  const CombinedRow row = combine_token(oracle, combine, rank, token);
  return widen(DType::kFp32, row.bytes.data());
}

void fill_float(std::span<std::byte> bytes, float value) {
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(float))
    std::memcpy(bytes.data() + at, &value, sizeof(float));
}

TEST(Oracle, CombineAddsWeightedRowsOfAToken) {
  const Oracle oracle(small_problem(Layout::kExpertMajor));
  CombineProblem combine{.weighted = true};
  // Expert e answers 10^e.
  combine.rows = [](int, const ExpectedRow& row, std::span<std::byte> bytes) {
    fill_float(bytes, static_cast<float>(std::pow(10, row.expert)));
  };
  EXPECT_EQ(combined(oracle, combine, 0, 0), 5 * 100 + 2 * 10);
  EXPECT_EQ(combined(oracle, combine, 0, 1), 16 * 1 + 32 * 100);
  combine.weighted = false;
  EXPECT_EQ(combined(oracle, combine, 0, 0), 110);
  combine.bias = [](int, std::int64_t, std::span<std::byte> bytes) { fill_float(bytes, 0.5F); };
  EXPECT_EQ(combined(oracle, combine, 1, 0), 100.5);
}

TEST(Oracle, CombineRoundsOncePerRank) {
  Problem problem;
  problem.routing.topk = 3;
  problem.routing.expert_to_rank = {0, 0, 1};
  problem.routing.ranks = {{.num_tokens = 1, .topk_idx = {0, 1, 2}, .topk_weights = {1, 1, 1}}, {}};
  problem.layout = Layout::kExpertMajor;
  CombineProblem combine{.dtype = DType::kBf16, .hidden = 8};
  // 1 + 2^-8 is a tie in bf16 and goes to 1; with the second rank's 2^-8 in the same sum it would
  // be 1 + 2^-7.
  combine.rows = [](int, const ExpectedRow& row, std::span<std::byte> bytes) {
    const float value = row.expert == 0 ? 1.0F : 0x1p-8F;
    for (std::size_t at = 0; at < bytes.size(); at += 2)
      narrow(DType::kBf16, value, bytes.data() + at);
  };
  const CombinedRow row = combine_token(Oracle(problem), combine, 0, 0);
  EXPECT_EQ(widen(DType::kBf16, row.bytes.data()), 1.0F);
  EXPECT_EQ(row.exact[0], 1.0 + 0x1p-7);
}

TEST(Oracle, DotProductsFollowTheDocumentedOrder) {
  // Elements 0 and 256 share an accumulator, in which 2^24 + 1 is lost; 128 and 384 share another,
  // and 2^24 + 2 is not.
  std::vector<float> a(512);
  const std::vector<float> ones(512, 1.0F);
  a[0] = 0x1p24F;
  a[256] = 1.0F;
  a[128] = 1.0F;
  a[384] = 1.0F;
  EXPECT_EQ(dot_rows(DType::kFp32, std::as_bytes(std::span(a)), std::as_bytes(std::span(ones))),
            0x1p24F + 2.0F);
}

TEST(Oracle, EveryChoiceHasExactlyOneRowInEveryRouting) {
  check_property(scaled_rounds(2000, 20000), 11, [] {
    const Oracle oracle(arbitrary_problem({.max_tokens = 40}));
    const Problem& problem = oracle.problem();
    std::map<std::tuple<int, int, std::int64_t, int>, int> num_rows;
    for (int rank = 0; rank < problem.routing.num_ranks(); ++rank) {
      for (const ExpectedRow& row : oracle.rank(rank).rows) {
        if (!row.is_padding) ++num_rows[{rank, row.src_rank, row.token, row.expert}];
      }
    }
    std::map<std::tuple<int, int, std::int64_t, int>, int> num_choices;
    for (int src = 0; src < problem.routing.num_ranks(); ++src) {
      const RankTokens& tokens = problem.routing.ranks[static_cast<std::size_t>(src)];
      for (std::size_t at = 0; at < tokens.topk_idx.size(); ++at) {
        if (tokens.topk_idx[at] < 0) continue;
        const int expert = static_cast<int>(tokens.topk_idx[at]);
        const auto token = static_cast<std::int64_t>(at) / problem.routing.topk;
        num_choices[{oracle.owner_of(expert), src, token,
                     problem.layout == Layout::kFlat ? -1 : expert}] = 1;
      }
    }
    RC_ASSERT(num_rows == num_choices);
  });
}

TEST(Oracle, CombinesAreWithinHalfAnUlpPerHop) {
  check_property(scaled_rounds(300, 3000), 12, [] {
    Problem problem = arbitrary_problem({.max_tokens = 20, .max_experts = 12});
    const Oracle oracle(problem);
    const RowValues values{.dtype = *rc::gen::element(DType::kBf16, DType::kFp16, DType::kFp32)};
    CombineProblem combine{
        .dtype = values.dtype, .hidden = 16, .weighted = problem.layout == Layout::kExpertMajor};
    combine.rows = [&](int owner, const ExpectedRow& row, std::span<std::byte> bytes) {
      values.fill_expert_row(owner, row, bytes);
    };
    for (std::int64_t token = 0; token < problem.routing.ranks[0].num_tokens; ++token) {
      const CombinedRow row = combine_token(oracle, combine, 0, token);
      for (std::size_t elem = 0; elem < row.exact.size(); ++elem) {
        const auto* at = row.bytes.data() + elem * static_cast<std::size_t>(size_of(values.dtype));
        RC_ASSERT(std::fabs(static_cast<double>(widen(values.dtype, at)) - row.exact[elem]) <=
                  row.error[elem]);
      }
    }
  });
}

}  // namespace
}  // namespace ep::test
