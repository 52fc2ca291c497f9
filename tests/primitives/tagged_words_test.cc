// SPDX-License-Identifier: Apache-2.0
// Words of peers that carry their tag: all are taken once, whatever their order, and whoever keeps
// one back gets the blame.
#include "primitives/tagged_words.h"

#include "tests/primitives/virtual_exec.h"
#include "tests/support/control_window.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ep::test {
namespace {

using primitives::SoloGroup;
using primitives::TaggedWords;
using primitives::WaitSite;

constexpr int kRanks = primitives::kLoadBatch + 3;
// Ranks lie further apart than their words, and are more than one look takes.
constexpr int kWordsPerRank = 4;
constexpr int kStride = kWordsPerRank + 2;
constexpr int kNumWords = kRanks * kWordsPerRank;

class TaggedWordsTest : public ::testing::Test {
 protected:
  TaggedWordsTest() : op_(window_.params(0)) { VirtualExec::restart(); }

  TaggedWords words() const { return {memory_.data(), kWordsPerRank, kStride, kRanks}; }
  void store(int i, std::uint32_t tag, std::uint32_t value) {
    const int at = i / kWordsPerRank * kStride + i % kWordsPerRank;
    memory_[static_cast<std::size_t>(at)] = layout::tagged_word(tag, value);
  }
  void store_all_but(int missing) {
    for (int i = 0; i < kNumWords; ++i) {
      if (i != missing) store(i, op_.tag(), value_of(i));
    }
  }
  static std::uint32_t value_of(int i) { return 1000 + static_cast<std::uint32_t>(i); }
  bool await() {
    return await_words(SoloGroup{}, op_, WaitSite::kCounts, words(),
                       [this](int word, int rank, std::uint32_t v) {
                         const int i = rank * kWordsPerRank + word;
                         EXPECT_EQ(v, value_of(i));
                         ++times_taken_[static_cast<std::size_t>(i)];
                       });
  }

  bool are_here() {
    return are_words_here(SoloGroup{}, op_, words(), [](int, int, std::uint32_t) {});
  }

  ControlWindow window_{{.num_ranks = kRanks}};
  primitives::OpContext<VirtualExec> op_;
  std::vector<std::uint64_t> memory_ = std::vector<std::uint64_t>(kRanks * kStride);
  std::vector<int> times_taken_ = std::vector<int>(kNumWords);
};

TEST_F(TaggedWordsTest, AreTakenAtOnceWhenAllAreThere) {
  store_all_but(-1);
  EXPECT_TRUE(are_here());
  EXPECT_TRUE(await());
  EXPECT_EQ(times_taken_, std::vector<int>(kNumWords, 1));
  EXPECT_EQ(VirtualExec::machine().num_polls, 0);
}

TEST_F(TaggedWordsTest, EachOneIsWaitedFor) {
  for (int late = 0; late < kNumWords; ++late) {
    memory_.assign(memory_.size(), 0);
    times_taken_.assign(kNumWords, 0);
    store_all_but(late);
    EXPECT_FALSE(are_here()) << late;
    VirtualExec::restart([&](int polls) {
      if (polls == 70) store(late, op_.tag(), value_of(late));
    });
    EXPECT_TRUE(await()) << late;
    EXPECT_EQ(times_taken_, std::vector<int>(kNumWords, 1)) << late;
    EXPECT_EQ(VirtualExec::machine().num_polls, 70) << late;
  }
}

TEST_F(TaggedWordsTest, AnyOrderOfArrivalWillDo) {
  VirtualExec::restart([&](int polls) {
    const int i = kNumWords - polls;
    if (i >= 0) store(i, op_.tag(), value_of(i));
  });
  EXPECT_TRUE(await());
  EXPECT_EQ(times_taken_, std::vector<int>(kNumWords, 1));
}

TEST_F(TaggedWordsTest, AWordOfAnEarlierOperationIsNotHere) {
  store_all_but(4);
  store(4, op_.tag() - 1, value_of(4));
  EXPECT_FALSE(are_here());
}

TEST_F(TaggedWordsTest, TheRankThatKeepsAWordBackGetsTheBlame) {
  window_.set_timeout(1'000'000);
  store_all_but(2 * kWordsPerRank + 1);
  EXPECT_FALSE(await());
  EXPECT_EQ(window_.fault(0).peer, 2);
  EXPECT_EQ(window_.fault(0).site, static_cast<std::uint32_t>(WaitSite::kCounts));
}

}  // namespace
}  // namespace ep::test
