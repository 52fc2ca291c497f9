// SPDX-License-Identifier: Apache-2.0
// Final rows of a dispatch, on a case small enough to write down.
#include "bench/row_places.h"

#include <gtest/gtest.h>

#include <vector>

namespace ep::bench {
namespace {

/// Two ranks; rank 0 owns experts 0, 1 and rank 1 owns 2, 3. Top-2.
class BenchRowPlaces : public testing::Test {
 protected:
  BenchRowPlaces() {
    auto created = ExpertMap::balanced(4, 2);
    EXPECT_TRUE(created.ok());
    map_ = *created;
    // Rank 0: token 0 to both its experts, token 1 to one on each rank, token 2 to nobody.
    choices_.push_back({.num_tokens = 3, .topk_idx = {1, 0, 0, 2, -1, -1}, .topk_weights = {}});
    // Rank 1: token 0 twice to expert 1, token 1 to experts 3 and 2.
    choices_.push_back({.num_tokens = 2, .topk_idx = {1, 1, 3, 2}, .topk_weights = {}});
    for (RankChoices& rank : choices_) rank.topk_weights.resize(rank.topk_idx.size(), 1.0F);
  }

  RowPlaces places(Layout layout, int align) const {
    return RowPlaces({.layout = layout, .align = align, .map = map_}, choices_, 2);
  }

  static std::vector<std::int64_t> rows(const RowPlaces& places,
                                        int rank,
                                        std::int64_t num_tokens) {
    std::vector<std::int64_t> all;
    for (std::int64_t token = 0; token < num_tokens; ++token) {
      for (int k = 0; k < 2; ++k) all.push_back(places.row(rank, token, k));
    }
    return all;
  }

  ExpertMap map_;
  std::vector<RankChoices> choices_;
};

using Rows = std::vector<std::int64_t>;
constexpr std::int64_t kNone = RowPlaces::kNoRow;
constexpr std::int64_t kNoLimit = 1 << 20;

TEST_F(BenchRowPlaces, FlatHasOneRowPerTokenAndRank) {
  const RowPlaces flat = places(Layout::kFlat, 1);
  EXPECT_EQ(rows(flat, 0, 3), (Rows{0, 0, 1, 0, kNone, kNone}));
  EXPECT_EQ(rows(flat, 1, 2), (Rows{2, kNone, 1, 1}));
  EXPECT_EQ(flat.received(0).num_rows, 3);
  EXPECT_EQ(flat.received(1).num_rows, 2);
  EXPECT_EQ(flat.received(0).expert_counts, (Rows{2, 2}));
  EXPECT_EQ(flat.received(1).expert_counts, (Rows{2, 1}));
}

TEST_F(BenchRowPlaces, ExpertMajorGroupsByExpertAndPads) {
  const RowPlaces grouped = places(Layout::kExpertMajor, 4);
  EXPECT_EQ(rows(grouped, 0, 3), (Rows{4, 0, 1, 0, kNone, kNone}));
  EXPECT_EQ(rows(grouped, 1, 2), (Rows{5, kNone, 4, 1}));
  EXPECT_EQ(grouped.received(0).expert_offsets, (Rows{0, 4, 8}));
  EXPECT_EQ(grouped.received(1).expert_offsets, (Rows{0, 4, 8}));
  EXPECT_EQ(grouped.received(0).num_rows, 8);
}

TEST_F(BenchRowPlaces, TrafficCountsRowsAndThoseThatCross) {
  const auto flat = places(Layout::kFlat, 1).traffic_of(0, kNoLimit);
  EXPECT_EQ(flat.rows, 3);
  EXPECT_EQ(flat.crossing, 1);
  const auto grouped = places(Layout::kExpertMajor, 1).traffic_of(0, kNoLimit);
  EXPECT_EQ(grouped.rows, 4);
  EXPECT_EQ(grouped.crossing, 1);
  const auto other = places(Layout::kFlat, 1).traffic_of(1, kNoLimit);
  EXPECT_EQ(other.rows, 2);
  EXPECT_EQ(other.crossing, 1);
}

TEST_F(BenchRowPlaces, RowsBeyondTheCapacityDoNotTravel) {
  EXPECT_EQ(places(Layout::kFlat, 1).traffic_of(0, 1).rows, 2) << "row 0 at each rank";
  EXPECT_EQ(places(Layout::kFlat, 1).traffic_of(1, 1).rows, 0);
}

}  // namespace
}  // namespace ep::bench
