// SPDX-License-Identifier: Apache-2.0
// Routing tables: what RoutingView reads from them against the oracle, which shares no arithmetic
// with the library.
#include "layout/routing_tables.h"

#include "intranode/dispatch_resolve.h"
#include "tests/layout/region_list.h"
#include "tests/layout/routed_ranks.h"
#include "tests/primitives/virtual_exec.h"
#include "tests/support/arbitrary_problem.h"
#include "tests/support/property.h"
#include "tests/support/routing_cases.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace ep::test {
namespace {

using layout::Size;
using layout::TableLayout;
using View = RoutedRanks::View;

TEST(TableLayout, PartsFollowEachOtherAndFillTheSize) {
  check_property(scaled_rounds(2'000, 100'000), 9, [] {
    const layout::TableShape shape{.num_ranks = *rc::gen::inRange(1, 40),
                                   .num_experts = *rc::gen::inRange(1, 400),
                                   .num_tokens = *rc::gen::inRange<std::int64_t>(0, 10'000),
                                   .topk = *rc::gen::inRange(1, 33),
                                   .has_expert_rows = *rc::gen::arbitrary<bool>()};
    const std::int64_t ranks = shape.num_ranks;
    const std::int64_t columns = ranks + shape.num_experts;
    const std::int64_t masked = shape.has_expert_rows ? columns : ranks;
    const std::int64_t groups = (shape.num_tokens + 31) / 32;
    const TableLayout tables = layout::make_table_layout(shape);
    const std::vector<NamedRegion> parts = {
        {"experts", tables.experts, 4 * shape.num_tokens * shape.topk},
        {"masks", tables.masks, 4 * masked * groups},
        {"prefixes", tables.prefixes, 4 * masked * groups},
        {"counts", tables.counts, 4 * columns},
        {"first_rows", tables.first_rows, 8 * masked},
        {"capacities", tables.capacities, 8 * ranks},
        {"pairs_from", tables.pairs_from, 8 * ranks},
        {"pair_bases", tables.pair_bases, 8 * ranks},
        {"source_tokens", tables.source_tokens, 8 * ranks},
        {"expert_counts", tables.expert_counts, 8 * (columns - ranks)},
        {"expert_offsets", tables.expert_offsets, 8 * (columns - ranks + 1)},
        {"sizes", tables.sizes, std::int64_t{8} * layout::kNumSizes},
    };
    RC_ASSERT(layout_mismatch(parts, tables.total_bytes) == std::string{});
  });
}

TEST(RecordLayout, PartsFollowEachOtherAndFillTheSize) {
  check_property(scaled_rounds(2'000, 100'000), 10, [] {
    const auto pairs = *rc::gen::inRange<std::int64_t>(0, std::int64_t{1} << 36);
    const int topk = *rc::gen::inRange(1, 33);
    for (const bool has_expert_rows : {false, true}) {
      const auto record = layout::make_record_layout(pairs, topk, has_expert_rows);
      const std::vector<NamedRegion> parts = {
          {"src_tokens", record.src_tokens, 4 * pairs},
          {"record_rows", record.record_rows, has_expert_rows ? 4 * pairs * topk : 0},
      };
      RC_ASSERT(layout_mismatch(parts, record.total_bytes) == std::string{});
    }
  });
}

/// "rank 1 token 7 k 2: row: got 3, expected 4"; empty if equal.
std::string difference(const std::string& what, std::int64_t got, std::int64_t expected) {
  if (got == expected) return {};
  return what + ": got " + std::to_string(got) + ", expected " + std::to_string(expected);
}

/// One rank's tables against the oracle; the first difference is kept.
class TableCheck {
 public:
  TableCheck(const RoutedRanks& ranks, const Oracle& oracle, int rank)
      : view_(ranks.view(rank)), params_(ranks.params(rank)), oracle_(oracle), rank_(rank) {}

  std::string mismatch() {
    for (std::int64_t token = 0; token < num_tokens(rank_); ++token) {
      for (int k = 0; k < topk(); ++k) check_choice(token, k);
    }
    for (int dst = 0; dst < num_ranks(); ++dst) check_pairs(dst);
    check_sizes();
    if (oracle_.problem().layout == Layout::kExpertMajor) check_expert_offsets();
    return mismatch_;
  }

 private:
  const Routing& routing() const { return oracle_.problem().routing; }
  int num_ranks() const { return routing().num_ranks(); }
  int topk() const { return routing().topk; }
  std::int64_t num_tokens(int rank) const {
    return routing().ranks[static_cast<std::size_t>(rank)].num_tokens;
  }

  void expect(const std::string& what, std::int64_t got, std::int64_t expected) {
    if (!mismatch_.empty()) return;
    mismatch_ = difference("rank " + std::to_string(rank_) + ", " + what, got, expected);
  }

  bool goes_to(int src, std::int64_t token, int dst) const {
    for (int k = 0; k < topk(); ++k) {
      const std::int64_t expert = routing().idx(src, token, k);
      if (expert >= 0 && oracle_.owner_of(static_cast<int>(expert)) == dst) return true;
    }
    return false;
  }
  std::int64_t pairs_below(int src, int dst, std::int64_t token) const {
    std::int64_t pairs = 0;
    for (std::int64_t i = 0; i < std::min(token, num_tokens(src)); ++i) {
      if (goes_to(src, i, dst)) ++pairs;
    }
    return pairs;
  }

  void check_choice(std::int64_t token, int k) {
    const std::string at = "token " + std::to_string(token) + " k " + std::to_string(k);
    const std::int32_t* experts = view_.experts_of(token);
    expect(at + " expert", experts[k], routing().idx(rank_, token, k));
    const auto place = oracle_.place_of(rank_, token, k);
    if (!place) return;
    const bool is_expert_major = oracle_.problem().layout == Layout::kExpertMajor;
    expect(at + " row",
           is_expert_major ? view_.expert_row(place->expert, token)
                           : view_.flat_row(place->rank, token),
           place->is_dropped ? -1 : place->row);
    expect(at + " is_first_of_expert", View::is_first_of_expert(experts, k), !place->is_repeat());
    if (place->is_repeat()) return;
    const float weight = intranode::summed_weight(experts, topk(), k, params_.topk_weights, token);
    expect(at + " weight is right", weight == oracle_.summed_weight(rank_, token, k), true);
  }

  void check_pairs(int peer) {
    const std::string at = "peer " + std::to_string(peer);
    for (std::int64_t token = 0; token < num_tokens(rank_); ++token) {
      const std::int64_t before = pairs_below(rank_, peer, token);
      const bool has_pair = pairs_below(rank_, peer, token + 1) > before;
      expect(at + " pair of " + std::to_string(token), std::int64_t{view_.pair_at(peer, token)},
             has_pair ? before : -1);
    }
    expect(at + " tokens", view_.source_tokens()[peer], num_tokens(peer));
    expect(at + " pairs from", view_.pairs_from()[peer],
           pairs_below(peer, rank_, num_tokens(peer)));
    std::int64_t base = 0;
    for (int src = 0; src < peer; ++src) base += pairs_below(src, rank_, num_tokens(src));
    expect(at + " pair base", view_.pair_bases()[peer], base);
  }

  void check_sizes() {
    const ExpectedRank& expected = oracle_.rank(rank_);
    const auto size = [this](Size which) { return view_.sizes()[static_cast<int>(which)]; };
    expect("rows", size(Size::kRows), expected.num_kept());
    expect("needed rows", size(Size::kNeededRows), expected.num_needed());
    expect("has overflow", size(Size::kHasOverflow), expected.overflows());
    std::int64_t pairs = 0;
    for (int src = 0; src < num_ranks(); ++src) {
      pairs += pairs_below(src, rank_, num_tokens(src));
    }
    expect("pairs", size(Size::kPairs), pairs);
    const auto* counts = view_.array<std::int64_t>(params_.routing.tables.expert_counts);
    for (std::size_t i = 0; i < expected.expert_counts.size(); ++i) {
      expect("expert count " + std::to_string(i), counts[i], expected.expert_counts[i]);
    }
  }

  void check_expert_offsets() {
    const std::vector<std::int64_t>& expected = oracle_.rank(rank_).expert_offsets;
    const auto* offsets = view_.array<std::int64_t>(params_.routing.tables.expert_offsets);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expect("expert offset " + std::to_string(i), offsets[i], expected[i]);
    }
  }

  View view_;
  const intranode::DispatchParams& params_;
  const Oracle& oracle_;
  int rank_;
  std::string mismatch_;
};

/// The first difference of any rank's tables from the oracle; empty if none.
std::string table_mismatch(const Problem& problem, int lanes_per_rank) {
  const Oracle oracle(problem);
  const RoutedRanks ranks(oracle, lanes_per_rank);
  if (!ranks.is_resolved()) return "not resolved";
  for (int rank = 0; rank < problem.routing.num_ranks(); ++rank) {
    const std::string mismatch = TableCheck(ranks, oracle, rank).mismatch();
    if (!mismatch.empty()) return problem.describe() + ": " + mismatch;
  }
  return {};
}

TEST(RoutingTables, AnyRoutingHasTheRowsOfTheOracle) {
  check_property(scaled_rounds(2'000, 50'000), 11, [] {
    const Problem problem = arbitrary_problem();
    const int lanes_per_rank = *rc::gen::inRange(1, 4);
    RC_ASSERT(table_mismatch(problem, lanes_per_rank) == std::string{});
  });
}

TEST(RoutingTables, AnyLongRoutingHasTheRowsOfTheOracle) {
  check_property(scaled_rounds(60, 5'000), 12, [] {
    const Problem problem = arbitrary_problem({.max_ranks = 4, .max_tokens = 700});
    RC_ASSERT(table_mismatch(problem, 2) == std::string{});
  });
}

TEST(RoutingTables, CornersHaveTheRowsOfTheOracle) {
  for (const int num_ranks : {1, 2, 3, 5}) {
    for (const NamedRouting& corner : corner_routings(num_ranks)) {
      for (const Layout layout : {Layout::kFlat, Layout::kExpertMajor}) {
        const Problem problem{.routing = corner.routing, .layout = layout};
        EXPECT_EQ(table_mismatch(problem, 1), "") << corner.name << ", " << num_ranks << " ranks";
      }
    }
  }
}

/// Rows are sent as soon as the verdict is there: where the prefix of a column was missing, they
/// went to wrong places.
TEST(RoutingTables, TheVerdictWaitsForColumnsThatAnotherLaneSumsUp) {
  const Oracle oracle({.routing = uniform_routing(1, 100, 2, 4, 1)});
  const RoutedRanks ranks(oracle, 0);
  const intranode::DispatchParams& params = ranks.params(0);
  const primitives::OpContext<VirtualExec> op(params.op);
  std::vector<std::uint64_t> scratch(100);
  const primitives::Lane lane{.scratch =
                                  static_cast<std::byte*>(static_cast<void*>(scratch.data()))};
  const primitives::SoloGroup group;
  const int num_columns = params.routing.tables.shape.num_mask_columns();
  VirtualExec::restart([&](int polls) {
    if (polls == 50) {
      for (int column = 0; column < num_columns; ++column)
        intranode::send_count_to(op, 0, column, 1);
    }
    if (polls == 100) stage_complete(group, op, layout::Stage::kScanned, num_columns);
  });
  const layout::TableShape& shape = params.routing.tables.shape;
  const intranode::RouteScratch route_scratch(lane, shape);
  complete_counts(group, op, shape, route_scratch, count_groups(group, op, params, route_scratch));
  intranode::announce_block(group, op, params.block, layout::kAccepted);
  ASSERT_TRUE(announce_dispatch(group, op, params));
  ASSERT_TRUE(resolve(group, op, params, lane));
  EXPECT_EQ(VirtualExec::machine().num_polls, 100);
}

}  // namespace
}  // namespace ep::test
