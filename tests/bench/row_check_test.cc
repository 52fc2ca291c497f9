// SPDX-License-Identifier: Apache-2.0
// The checks of the bench must find what is wrong: a right result is made by hand, then damaged.
#include "bench/row_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace ep::bench {
namespace {

constexpr int kNumRanks = 2;
constexpr int kTopk = 2;
constexpr std::int64_t kTokens = 5;
constexpr std::int64_t kHidden = 32;
constexpr int kSelf = 1;
constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

/// What rank kSelf gets from a right dispatch, in ordinary memory.
struct Delivery {
  std::vector<std::byte> x;
  std::vector<float> scales;
  std::vector<std::int64_t> topk_idx;
  std::vector<float> topk_weights;
  std::vector<std::int64_t> expert_counts;
  std::vector<std::int64_t> expert_offsets;
  std::vector<std::int64_t> sizes;
};

template <class T>
Tensor tensor_of(std::vector<T>& values, DType dtype, std::initializer_list<std::int64_t> shape) {
  return Tensor(TensorView(values.data(), dtype, shape), nullptr);
}

class BenchRowCheck : public testing::TestWithParam<Layout> {
 protected:
  BenchRowCheck() : rows_({.dtype = DType::kInt8, .hidden = kHidden, .exact = false}) {
    routing_ = make_random_routing({.num_ranks = kNumRanks,
                                    .num_tokens = kTokens,
                                    .topk = kTopk,
                                    .num_experts = 4,
                                    .seed = 3,
                                    .exact = false});
    auto created = ExpertMap::balanced(4, kNumRanks);
    EXPECT_TRUE(created.ok());
    map_ = *created;
    for (int rank = 0; rank < kNumRanks; ++rank) choices_.push_back(choices_of(*routing_, 0, rank));
    places_ = std::make_unique<RowPlaces>(
        PlacesConfig{
            .layout = GetParam(), .align = GetParam() == Layout::kFlat ? 1 : 4, .map = map_},
        choices_, kTopk);
    deliver();
  }

  void deliver() {
    const Received& expected = places_->received(kSelf);
    const auto num_rows = static_cast<std::size_t>(expected.num_rows);
    right_.x.resize(num_rows * kHidden);
    right_.scales.resize(num_rows);
    right_.topk_idx.assign(num_rows * kTopk, -1);
    right_.topk_weights.assign(num_rows * (GetParam() == Layout::kFlat ? kTopk : 1), 0.0F);
    right_.expert_counts = expected.expert_counts;
    right_.expert_offsets = expected.expert_offsets;
    right_.sizes = {expected.num_rows, expected.num_rows, 0};
    for (int src = 0; src < kNumRanks; ++src) {
      for (std::int64_t token = 0; token < kTokens; ++token) {
        for (int k = 0; k < kTopk; ++k) deliver_choice(src, token, k);
      }
    }
  }

  void deliver_choice(int src, std::int64_t token, int k) {
    const RankChoices& sent = choices_[static_cast<std::size_t>(src)];
    const auto index = static_cast<std::size_t>(token * kTopk + k);
    const int expert = static_cast<int>(sent.topk_idx[index]);
    if (map_.rank_of(expert) != kSelf) return;
    const auto row = static_cast<std::size_t>(places_->row(src, token, k));
    rows_.fill(routing_->row_key(0, src, token), {&right_.x[row * kHidden], kHidden},
               {&right_.scales[row], 1});
    const std::size_t cell =
        GetParam() == Layout::kFlat ? row * kTopk + static_cast<std::size_t>(k) : row;
    right_.topk_weights[cell] = sent.topk_weights[index];
    if (GetParam() == Layout::kFlat) right_.topk_idx[cell] = map_.local_of(expert);
  }

  /// Checks a delivery after `damage`.
  RowCheck check(const std::function<void(Delivery&)>& damage, std::int64_t capacity = kNoLimit) {
    Delivery got = right_;
    damage(got);
    const auto num_rows = static_cast<std::int64_t>(got.x.size()) / kHidden;
    DispatchOutput output;
    output.x = tensor_of(got.x, DType::kInt8, {num_rows, kHidden});
    output.scales = tensor_of(got.scales, DType::kFp32, {num_rows, 1});
    const auto num_weights = static_cast<std::int64_t>(got.topk_weights.size());
    output.topk_idx = tensor_of(got.topk_idx, DType::kInt64, {num_rows, kTopk});
    output.topk_weights = tensor_of(got.topk_weights, DType::kFp32, {num_weights});
    const auto num_local = static_cast<std::int64_t>(got.expert_counts.size());
    output.expert_counts = tensor_of(got.expert_counts, DType::kInt64, {num_local});
    output.expert_offsets = tensor_of(got.expert_offsets, DType::kInt64,
                                      {static_cast<std::int64_t>(got.expert_offsets.size())});
    output.sizes = tensor_of(got.sizes, DType::kInt64, {3});
    const StepView step = {.places = *places_,
                           .routing = *routing_,
                           .rows_step = 0,
                           .capacity = capacity,
                           .rank = kSelf};
    return check_received(step, rows_, output);
  }

  /// First row of a token in the delivery.
  std::size_t first_row() const {
    for (std::int64_t token = 0; token < kTokens; ++token) {
      for (int k = 0; k < kTopk; ++k) {
        const auto index = static_cast<std::size_t>(token * kTopk + k);
        if (map_.rank_of(static_cast<int>(choices_[0].topk_idx[index])) == kSelf) {
          return static_cast<std::size_t>(places_->row(0, token, k));
        }
      }
    }
    return 0;
  }

  RowSource rows_;
  std::unique_ptr<Routing> routing_;
  ExpertMap map_;
  std::vector<RankChoices> choices_;
  std::unique_ptr<RowPlaces> places_;
  Delivery right_;
};

TEST_P(BenchRowCheck, ARightDeliveryHasNoWrongRow) {
  const RowCheck right = check([](Delivery&) {});
  EXPECT_EQ(right.wrong, 0) << right.first_wrong;
  EXPECT_EQ(right.checked, places_->received(kSelf).num_rows);
}

TEST_P(BenchRowCheck, OneBitOfOneRowIsFound) {
  const std::size_t row = first_row();
  const RowCheck wrong =
      check([row](Delivery& got) { got.x[row * kHidden + kHidden - 1] ^= std::byte{1}; });
  EXPECT_EQ(wrong.wrong, 1);
  EXPECT_NE(wrong.first_wrong.find("row " + std::to_string(row) + " "), std::string::npos);
}

TEST_P(BenchRowCheck, TwoRowsInEachOthersPlaceAreFound) {
  const RowCheck wrong = check([](Delivery& got) {
    std::swap_ranges(got.x.begin(), got.x.begin() + kHidden, got.x.begin() + kHidden);
  });
  EXPECT_EQ(wrong.wrong, 2);
}

TEST_P(BenchRowCheck, AWrongScaleIsFound) {
  const std::size_t row = first_row();
  EXPECT_EQ(check([row](Delivery& got) { got.scales[row] *= 2; }).wrong, 1);
}

TEST_P(BenchRowCheck, AWrongWeightIsFound) {
  const RowCheck wrong = check([](Delivery& got) {
    for (float& weight : got.topk_weights) weight += 1;
  });
  EXPECT_GT(wrong.wrong, 0);
}

TEST_P(BenchRowCheck, WrongSizesCountsAndOffsetsAreFound) {
  EXPECT_EQ(check([](Delivery& got) { got.sizes[2] = 1; }).wrong, 1);
  EXPECT_EQ(check([](Delivery& got) { got.expert_counts[1] += 1; }).wrong, 1);
  const int expected = GetParam() == Layout::kFlat ? 0 : 1;
  EXPECT_EQ(check([](Delivery& got) {
              if (!got.expert_offsets.empty()) got.expert_offsets[1] += 4;
            }).wrong,
            expected);
}

TEST_P(BenchRowCheck, ATensorThatIsTooSmallIsNotRead) {
  const RowCheck wrong = check([](Delivery& got) { got.x.resize(got.x.size() - kHidden); });
  EXPECT_EQ(wrong.wrong, places_->received(kSelf).num_rows);
}

TEST_P(BenchRowCheck, RowsBeyondTheCapacityAreNotLookedAt) {
  const RowCheck right = check(
      [this](Delivery& got) {
        got.sizes = {2, places_->received(kSelf).num_rows, 1};
        std::fill(got.x.begin() + 2 * kHidden, got.x.end(), std::byte{0xff});
      },
      2);
  EXPECT_EQ(right.wrong, 0) << right.first_wrong;
  EXPECT_EQ(right.checked, 2);
}

TEST_P(BenchRowCheck, PaddingThatIsNotZeroIsFound) {
  if (GetParam() == Layout::kFlat) return;  // flat has no padding
  const Received& expected = places_->received(kSelf);
  const auto pad = static_cast<std::size_t>(expected.expert_offsets[0] + expected.expert_counts[0]);
  ASSERT_LT(pad, static_cast<std::size_t>(expected.expert_offsets[1]));
  const RowCheck wrong = check([pad](Delivery& got) { got.x[pad * kHidden] = std::byte{7}; });
  EXPECT_EQ(wrong.wrong, 1);
  EXPECT_NE(wrong.first_wrong.find("padding row"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Layouts,
                         BenchRowCheck,
                         testing::Values(Layout::kFlat, Layout::kExpertMajor),
                         [](const auto& tested) {
                           return tested.param == Layout::kFlat ? "Flat" : "ExpertMajor";
                         });

}  // namespace
}  // namespace ep::bench
