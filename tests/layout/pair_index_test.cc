// SPDX-License-Identifier: Apache-2.0
// How an owner finds the pairs of a reader's tokens.
#include "intranode/push_steps.h"
#include "primitives/host_exec.h"
#include "tests/support/control_window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace ep::test {
namespace {

using intranode::PushScratch;
using primitives::HostExec;
using primitives::SoloGroup;

constexpr int kRanks = 3;
constexpr int kOwner = 1;
constexpr std::int64_t kMaxTokens = 600;

/// An owner with the records of one dispatch.
class PairIndex : public ::testing::Test {
 protected:
  /// tokens[src]: those with a pair here, ascending. All ranks have kMaxTokens tokens.
  void dispatch(const std::vector<std::vector<std::int32_t>>& tokens, std::int64_t capacity) {
    params_.routing.tables = layout::make_table_layout({.num_ranks = kRanks, .topk = 2});
    block_.assign(static_cast<std::size_t>(params_.routing.tables.total_bytes) / 8, 0);
    params_.routing.block = static_cast<std::byte*>(static_cast<void*>(block_.data()));
    const intranode::RoutingView<HostExec> routing(params_.routing);
    records_.clear();
    for (std::size_t src = 0; src < tokens.size(); ++src) {
      routing.pair_bases()[src] = static_cast<std::int64_t>(records_.size());
      routing.pairs_from()[src] = static_cast<std::int64_t>(tokens[src].size());
      routing.source_tokens()[src] = kMaxTokens;
      routing.capacities()[src] = capacity;
      records_.insert(records_.end(), tokens[src].begin(), tokens[src].end());
    }
    // A flat owner has no record of a dropped pair.
    records_.resize(std::min(records_.size(), static_cast<std::size_t>(capacity)));
    params_.src_tokens = records_.data();
  }

  /// (reader, token) -> pair, as the tickets of one push tell.
  std::set<std::pair<std::int64_t, std::int64_t>> walk(int ticket_tokens) {
    params_.op = window_.params(kOwner);
    params_.push_ticket_tokens = ticket_tokens;
    const primitives::OpContext<HostExec> op(params_.op);
    for (auto& ticket : op.local()->tickets) ticket.value = 0;
    index_pairs(SoloGroup{}, op, params_);
    std::vector<std::uint64_t> memory(
        static_cast<std::size_t>(PushScratch::bytes(params_.routing.tables.shape)) / 8 + 1);
    const primitives::Lane lane{.scratch =
                                    static_cast<std::byte*>(static_cast<void*>(memory.data()))};
    const PushScratch scratch(lane, params_.routing.tables.shape);
    intranode::PushTickets<HostExec, SoloGroup> tickets(SoloGroup{}, op, params_, scratch);
    std::set<std::pair<std::int64_t, std::int64_t>> found;
    while (tickets.next()) {
      EXPECT_NE(tickets.reader(), kOwner);
      for (int i = 0; i < ticket_tokens; ++i) {
        const std::int32_t pair = scratch.pairs[i];
        if (pair < 0) continue;
        EXPECT_EQ(records_[static_cast<std::size_t>(tickets.record_of(pair))], tickets.token(i));
        EXPECT_TRUE(found.emplace(tickets.reader(), tickets.token(i)).second);
      }
    }
    return found;
  }

  ControlWindow window_{{.num_ranks = kRanks, .max_tokens = kMaxTokens}};
  intranode::CombineParams params_;
  std::vector<std::uint64_t> block_;
  std::vector<std::int32_t> records_;
};

std::vector<std::int32_t> every(int step, std::int32_t first = 0) {
  std::vector<std::int32_t> tokens;
  for (std::int32_t token = first; token < kMaxTokens; token += step) tokens.push_back(token);
  return tokens;
}

TEST_F(PairIndex, EveryPairOfAnotherRankIsFoundOnce) {
  dispatch({every(2), every(1), every(7, 3)}, 10'000);
  for (const int ticket_tokens : {1, 2, 4, 8}) {
    std::set<std::pair<std::int64_t, std::int64_t>> expected;
    for (const std::int32_t token : every(2)) expected.emplace(0, token);
    for (const std::int32_t token : every(7, 3)) expected.emplace(2, token);
    EXPECT_EQ(walk(ticket_tokens), expected) << ticket_tokens;
  }
}

TEST_F(PairIndex, DroppedPairsOfAFlatOwnerAreNone) {
  dispatch({every(2), every(5), every(1)}, 300 + 120 + 4);
  std::set<std::pair<std::int64_t, std::int64_t>> expected;
  for (const std::int32_t token : every(2)) expected.emplace(0, token);
  for (const std::int32_t token : {0, 1, 2, 3}) expected.emplace(2, token);
  EXPECT_EQ(walk(8), expected);
}

TEST_F(PairIndex, EntriesOfAnEarlierOperationAreNone) {
  dispatch({every(1), every(1), every(1)}, 10'000);
  walk(8);
  dispatch({every(3, 1), {}, {5, 599}}, 10'000);
  std::set<std::pair<std::int64_t, std::int64_t>> expected{{2, 5}, {2, 599}};
  for (const std::int32_t token : every(3, 1)) expected.emplace(0, token);
  EXPECT_EQ(walk(2), expected);
}

}  // namespace
}  // namespace ep::test
