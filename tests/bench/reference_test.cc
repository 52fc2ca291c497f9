// SPDX-License-Identifier: Apache-2.0
// The fp64 layer: values worked out by hand, and how far an output may be from them.
#include "bench/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

namespace ep::bench {
namespace {

constexpr std::int64_t kHidden = 8;

std::vector<std::byte> row_of(DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(size_of(dtype)));
  narrow_row(values, dtype, bytes);
  return bytes;
}

std::vector<std::byte> row_of(DType dtype, float value) {
  return row_of(dtype, std::vector<float>(kHidden, value));
}

/// Expert 0: 2x + 1; expert 1: -x; expert 2: 0.5x - 0.25.
const std::vector<ExpertFunction> kExperts = {{2, 1}, {-1, 0}, {0.5F, -0.25F}};

Reference reference_for(Layout layout, DType dtype, bool is_exact) {
  return Reference({.layout = layout, .exact = is_exact, .dtype = dtype, .hidden = kHidden},
                   kExperts);
}

TEST(BenchReference, AddsWeightedExperts) {
  for (Layout layout : {Layout::kFlat, Layout::kExpertMajor}) {
    Reference reference = reference_for(layout, DType::kFp32, true);
    const auto input = row_of(DType::kFp32, 3.0F);
    // 0.5 * (2*3 + 1) + 2 * (-3) + 4 * (1.5 - 0.25) = 3.5 - 6 + 5
    reference.compute({.dtype = DType::kFp32, .bytes = input, .scales = {}},
                      std::vector<Term>{{0, 0, 0.5F}, {0, 1, 2}, {1, 2, 4}});
    EXPECT_FALSE(reference.compare(row_of(DType::kFp32, 2.5F)).has_value());
    const auto mismatch = reference.compare(row_of(DType::kFp32, std::nextafter(2.5F, 3.0F)));
    ASSERT_TRUE(mismatch.has_value());
    EXPECT_EQ(mismatch->expected, 2.5);
    EXPECT_EQ(mismatch->elem, 0);
  }
}

TEST(BenchReference, ATokenWithoutExpertsIsZero) {
  Reference reference = reference_for(Layout::kFlat, DType::kBf16, false);
  const auto input = row_of(DType::kBf16, 3.0F);
  reference.compute({.dtype = DType::kBf16, .bytes = input, .scales = {}}, {});
  EXPECT_FALSE(reference.compare(row_of(DType::kBf16, 0.0F)).has_value());
  EXPECT_TRUE(reference.compare(row_of(DType::kBf16, 1e-30F)).has_value());
}

TEST(BenchReference, APoisonedElementIsNamed) {
  Reference reference = reference_for(Layout::kFlat, DType::kBf16, false);
  const auto input = row_of(DType::kBf16, 1.0F);
  reference.compute({.dtype = DType::kBf16, .bytes = input, .scales = {}},
                    std::vector<Term>{{0, 0, 1}});
  auto output = row_of(DType::kBf16, 3.0F);
  EXPECT_FALSE(reference.compare(output).has_value());
  output[2 * 5] = output[2 * 5 + 1] = std::byte{0xff};
  const auto mismatch = reference.compare(output);
  ASSERT_TRUE(mismatch.has_value());
  EXPECT_EQ(mismatch->elem, 5);
  EXPECT_TRUE(std::isnan(mismatch->actual));
}

/// bf16 between 2 and 4 steps by 1/64: one hop of one expert may be off by half of that.
TEST(BenchReference, OneHopAllowsHalfAStepInTheLastPlace) {
  Reference reference = reference_for(Layout::kFlat, DType::kBf16, false);
  const float x = 1.0F + 1.0F / 128;  // 2x + 1 = 3.015625 = 3 + 1/64
  const auto input = row_of(DType::kBf16, x);
  reference.compute({.dtype = DType::kBf16, .bytes = input, .scales = {}},
                    std::vector<Term>{{0, 0, 1}});
  EXPECT_FALSE(reference.compare(row_of(DType::kBf16, 3.015625F)).has_value());
  EXPECT_TRUE(reference.compare(row_of(DType::kBf16, 3.0F)).has_value());
  EXPECT_TRUE(reference.compare(row_of(DType::kBf16, 3.03125F)).has_value());
}

/// Two ranks add 1 + 1/256 each: their hops round to 1, the sum is 2 where 2 + 1/128 is exact.
TEST(BenchReference, TwoHopsMayBothRound) {
  Reference reference = reference_for(Layout::kFlat, DType::kBf16, false);
  const auto input = row_of(DType::kBf16, 1.0F);
  const float weight = -(1 + 1.0F / 256);
  const std::vector<Term> terms = {{0, 1, weight}, {1, 1, weight}};
  reference.compute({.dtype = DType::kBf16, .bytes = input, .scales = {}}, terms);
  EXPECT_FALSE(reference.compare(row_of(DType::kBf16, 2.0F)).has_value());
  EXPECT_TRUE(reference.compare(row_of(DType::kBf16, 2.0F - 1.0F / 64)).has_value());
  EXPECT_TRUE(reference.compare(row_of(DType::kBf16, 2.0F + 3.0F / 64)).has_value());
}

/// In expert_major each expert's row is rounded too; in flat it is not.
/// Half steps of the type that the hops allow, of terms of 1 from the given ranks.
double allowed_half_steps(int rank, int lsa_size, const std::vector<int>& owners) {
  Reference reference({.layout = Layout::kFlat,
                       .dtype = DType::kBf16,
                       .hidden = kHidden,
                       .rank = rank,
                       .lsa_size = lsa_size},
                      kExperts);
  const auto input = row_of(DType::kBf16, 0.0F);
  std::vector<Term> terms;
  for (const int owner : owners) terms.push_back({owner, 0, 1.0F});  // 2 * 0 + 1
  reference.compute({.dtype = DType::kBf16, .bytes = input, .scales = {}}, terms);
  const auto mismatch = reference.compare(row_of(DType::kBf16, 1000.0F));
  EXPECT_TRUE(mismatch.has_value());
  EXPECT_EQ(mismatch->expected, static_cast<double>(owners.size()));
  return mismatch->tolerance / half_ulp(DType::kBf16, 1.0);
}

constexpr double kFloatErrors = 0.01;  // in half steps

TEST(BenchReference, HopsOfAnotherNodeAreRoundedTogether) {
  // Half steps: of a hop of 1 are 1; of a sum of 2 or 3 are 2; of 4 to 7 are 4.
  EXPECT_NEAR(allowed_half_steps(0, 2, {2}), 1, kFloatErrors) << "one number crosses as it is";
  EXPECT_NEAR(allowed_half_steps(0, 2, {2, 3}), 1 + 1 + 2, kFloatErrors) << "and is the total";
  EXPECT_NEAR(allowed_half_steps(0, 2, {0, 1}), 1 + 1 + 2, kFloatErrors) << "its own node";
  EXPECT_NEAR(allowed_half_steps(0, 2, {0, 2, 3}), 3 + 2 + 2, kFloatErrors);
  EXPECT_NEAR(allowed_half_steps(2, 2, {0, 2, 3}), 3 + 2, kFloatErrors) << "the far hop is alone";
  EXPECT_NEAR(allowed_half_steps(0, 2, {0, 2, 3, 4, 5}), 5 + 2 + 2 + 4, kFloatErrors);
  EXPECT_NEAR(allowed_half_steps(5, 2, {0, 1, 4, 5}), 4 + 2 + 4, kFloatErrors);
}

/// The roundings of nodes of one rank are those of a single node.
TEST(BenchReference, NodesOfOneRankAllowWhatASingleNodeDoes) {
  for (const std::vector<int>& owners :
       std::vector<std::vector<int>>{{1}, {0, 1}, {0, 0, 2}, {1, 2, 3}, {0, 1, 2, 3}}) {
    EXPECT_NEAR(allowed_half_steps(1, 1, owners), allowed_half_steps(1, 4, owners), kFloatErrors);
  }
}

TEST(BenchReference, ExpertMajorAlsoRoundsEveryExpertsRow) {
  const auto input = row_of(DType::kBf16, 1.0F + 1.0F / 128);
  const std::vector<Term> terms = {{0, 2, 64}, {0, 1, 16}};
  // 64 * (0.50390625 - 0.25) + 16 * (-1.0078125) = 0.125; the rows are known to 2^-10 and 2^-8 at
  // most.
  const auto off = row_of(DType::kBf16, 0.125F + 1.0F / 32);
  Reference flat = reference_for(Layout::kFlat, DType::kBf16, false);
  flat.compute({.dtype = DType::kBf16, .bytes = input, .scales = {}}, terms);
  EXPECT_TRUE(flat.compare(off).has_value());
  Reference grouped = reference_for(Layout::kExpertMajor, DType::kBf16, false);
  grouped.compute({.dtype = DType::kBf16, .bytes = input, .scales = {}}, terms);
  EXPECT_FALSE(grouped.compare(off).has_value());
  EXPECT_TRUE(grouped.compare(row_of(DType::kBf16, 0.5F)).has_value());
}

TEST(BenchReference, ExactLayersAllowNoMinusZero) {
  Reference reference = reference_for(Layout::kFlat, DType::kBf16, true);
  const auto input = row_of(DType::kBf16, 0.0F);
  reference.compute({.dtype = DType::kBf16, .bytes = input, .scales = {}},
                    std::vector<Term>{{0, 1, 1}});
  EXPECT_FALSE(reference.compare(row_of(DType::kBf16, 0.0F)).has_value());
  EXPECT_TRUE(reference.compare(row_of(DType::kBf16, -0.0F)).has_value());
}

TEST(BenchReference, QuantisedInputsAreScaledAndReturnBf16) {
  Reference reference = reference_for(Layout::kFlat, DType::kInt8, true);
  const auto input = row_of(DType::kInt8, 6.0F);
  const std::vector<float> scales = {0.5F};
  reference.compute({.dtype = DType::kInt8, .bytes = input, .scales = scales},
                    std::vector<Term>{{0, 0, 1}});
  EXPECT_FALSE(reference.compare(row_of(DType::kBf16, 7.0F)).has_value());
}

/// What the bench's own experts compute lies within the bounds, for random layers of every type.
TEST(BenchReference, LocalExpertsStayWithinTheBounds) {
  const std::vector<ExpertFunction> experts = make_experts(4, 11, false);
  const auto map = ExpertMap::balanced(4, 1);
  ASSERT_TRUE(map.ok());
  LocalExperts local(experts, *map, 0);
  for (DType dtype : {DType::kBf16, DType::kFp16, DType::kFp32}) {
    Reference reference(
        {.layout = Layout::kFlat, .exact = false, .dtype = dtype, .hidden = kHidden}, experts);
    for (int trial = 0; trial < 500; ++trial) {
      std::vector<float> values(kHidden);
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = std::sin(static_cast<float>(trial) + static_cast<float>(i) * 0.7F);
      }
      const auto input = row_of(dtype, values);
      auto output = row_of(dtype, 0.0F);
      const std::vector<std::int64_t> topk_idx = {3, 0, -1, 1};
      const std::vector<float> weights = {0.3F, 0.2F, 0.0F, 0.7F};
      local.apply_flat(
          {.dtype = dtype, .hidden = kHidden, .rows = input.data(), .out = output.data()}, 1,
          topk_idx, weights);
      reference.compute({.dtype = dtype, .bytes = input, .scales = {}},
                        std::vector<Term>{{0, 3, 0.3F}, {0, 0, 0.2F}, {0, 1, 0.7F}});
      ASSERT_FALSE(reference.compare(output).has_value()) << name_of(dtype) << " " << trial;
    }
  }
}

/// The largest sums of an exact layer still fit the narrowest type.
TEST(BenchReference, ExactTermsFitBf16) {
  for (const ExpertFunction& function : make_experts(64, 3, true)) {
    EXPECT_EQ(std::fabs(function.scale), 1.0F);
    EXPECT_LE(std::fabs(function.shift), 1.0F);
  }
  constexpr int kMaxTopk = 32;
  const double most = kMaxTopk * kMaxExactTerm;
  EXPECT_EQ(round_to(DType::kBf16, most - 1), most - 1);
}

}  // namespace
}  // namespace ep::bench
