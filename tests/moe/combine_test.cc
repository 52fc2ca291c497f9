// SPDX-License-Identifier: Apache-2.0
// Tests of combine: the sums, bit for bit, from rows anywhere, by every way.
#include "tests/moe/sample_problems.h"
#include "tests/support/moe_ops.h"

#include <gtest/gtest.h>

#include <cstring>

namespace ep::test {
namespace {

constexpr CombineWay kWays[] = {CombineWay::kAuto, CombineWay::kPull, CombineWay::kPush};

using SpecBody = std::function<void(const std::function<void(const CombineSpec&)>& check)>;

/// One dispatch in each layout, then every combine that `body` asks for.
void check_combines(const SpecBody& body, int num_ranks = 3) {
  for (const Layout layout : kLayouts) {
    const Problem problem = sample_problem(layout, num_ranks, 2);
    check_problem(problem, [&body, oracle = Oracle(problem)](RankContext& context, Group& group) {
      const auto output = checked_dispatch(context, group, oracle);
      if (!output) return;
      body([&](const CombineSpec& spec) {
        CombineSpec allowed = spec;
        allowed.weighted = spec.weighted && oracle.problem().layout == Layout::kExpertMajor;
        checked_combine(context, group, oracle, output->handle, allowed);
      });
    });
  }
}

TEST(Combine, SumsEveryDtypeWithWeightsAndBiasByEveryWay) {
  check_combines([](const auto& check) {
    for (const DType dtype : kReducible) {
      for (const CombineWay way : kWays) {
        const std::int64_t hidden = 128 / size_of(dtype);
        check({.values = {.dtype = dtype}, .hidden = hidden, .way = way});
        check({.values = {.dtype = dtype}, .hidden = hidden, .weighted = true, .way = way});
        check({.values = {.dtype = dtype}, .hidden = hidden, .has_bias = true, .way = way});
        check({.values = {.dtype = dtype},
               .hidden = hidden,
               .weighted = true,
               .has_bias = true,
               .way = way});
      }
    }
  });
}

TEST(Combine, ReadsRowsInTheArenaInPlaceAndStagesOthers) {
  check_combines([](const auto& check) {
    for (const RowsPlace place : {RowsPlace::kArena, RowsPlace::kOutside, RowsPlace::kStrided}) {
      for (const CombineWay way : kWays) {
        check({.way = way, .place = place});
        check({.weighted = true, .has_bias = true, .way = way, .place = place});
      }
    }
  });
}

TEST(Combine, WritesOnlyTheRowsOfACallersStridedOutput) {
  check_combines([](const auto& check) {
    for (const CombineWay way : kWays) {
      check({.weighted = true, .way = way, .out = OutPlace::kGuarded});
      check(
          {.has_bias = true, .way = way, .place = RowsPlace::kOutside, .out = OutPlace::kGuarded});
    }
  });
}

TEST(Combine, InfinitiesNansZerosAndSubnormalsFollowTheSameRules) {
  check_combines([](const auto& check) {
    for (const DType dtype : kReducible) {
      for (const CombineWay way : kWays) {
        const RowValues values{.kind = ValueKind::kSpecial, .dtype = dtype};
        const std::int64_t hidden = 128 / size_of(dtype);
        check({.values = values, .hidden = hidden, .way = way});
        check({.values = values, .hidden = hidden, .weighted = true, .has_bias = true, .way = way});
      }
    }
  });
}

TEST(Combine, TakesAnotherHiddenSizeThanItsDispatch) {
  check_combines([](const auto& check) {
    for (const std::int64_t hidden : {8, 16, 24, 56, 64}) {
      check({.hidden = hidden, .weighted = true, .has_bias = true});
      check({.hidden = hidden, .way = CombineWay::kPush, .place = RowsPlace::kOutside});
    }
  });
}

TEST(Combine, OneRankAloneCombinesItsOwnRows) {
  const auto body = [](const auto& check) {
    for (const CombineWay way : kWays) {
      check({.weighted = true, .has_bias = true, .way = way});
      check({.way = way, .place = RowsPlace::kOutside});
    }
  };
  check_combines(body, 1);
}

TEST(Combine, RoundsOncePerHopHoweverTheExpertsAreSpread) {
  Routing spread = uniform_routing(4, 100, 8, 32, 3);
  Routing gathered = spread;
  send_all_to_rank(gathered, 2);
  for (const Routing& routing : {spread, gathered}) {
    const Problem problem{.routing = routing, .layout = Layout::kExpertMajor};
    check_problem(problem, [oracle = Oracle(problem)](RankContext& context, Group& group) {
      const auto output = checked_dispatch(context, group, oracle);
      if (!output) return;
      for (const DType dtype : kReducible) {
        const std::int64_t hidden = 128 / size_of(dtype);
        checked_combine(context, group, oracle, output->handle,
                        {.values = {.dtype = dtype}, .hidden = hidden, .weighted = true});
      }
    });
  }
}

/// Runs of `run` tokens that all choose, then `run` tokens that choose nothing.
Routing routing_with_gaps(std::int64_t run) {
  Routing routing = uniform_routing(2, 320, 1, 2, 6);
  for (RankTokens& rank : routing.ranks) {
    for (std::int64_t token = 0; token < rank.num_tokens; ++token) {
      if (token / run % 2 == 1) rank.topk_idx[static_cast<std::size_t>(token)] = -1;
    }
  }
  return routing;
}

TEST(Combine, ChunksWithoutRowsLeaveTheRingsSlotsAlone) {
  for (const std::int64_t run : {8, 16}) {
    for (const int ring_slots : {1, 2}) {
      Problem problem{.routing = routing_with_gaps(run)};
      problem.hidden = 4096;
      GroupConfig config = config_for(problem);
      config.ring_slots = ring_slots;
      config.num_sms = 3;
      const Oracle oracle(problem);
      check_group({.num_ranks = 2}, config, [&](RankContext& context, Group& group) {
        const auto output = checked_dispatch(context, group, oracle);
        for (int round = 0; output && round < 3; ++round) {
          const CombineWay way = round % 2 == 0 ? CombineWay::kPush : CombineWay::kPull;
          const CombineSpec spec{.values = {.kind = ValueKind::kBits},
                                 .hidden = 4096,
                                 .way = way,
                                 .place = RowsPlace::kOutside};
          if (!checked_combine(context, group, oracle, output->handle, spec)) return;
        }
      });
    }
  }
}

TEST(Combine, RowsOfADispatchOutputAreReadInPlace) {
  const Problem problem = sample_problem(Layout::kExpertMajor);
  check_problem(problem, [oracle = Oracle(problem)](RankContext& context, Group& group) {
    const auto output = checked_dispatch(context, group, oracle);
    if (!output) return;
    const CombineSpec spec;
    const ExpectedRank& expected = oracle.rank(context.rank());
    for (std::int64_t row = 0; row < expected.num_kept(); ++row) {
      const ExpectedRow& source = expected.rows[static_cast<std::size_t>(row)];
      const auto bytes =
          bytes_of(output->x.view()).subspan(static_cast<std::size_t>(row * 128), 128);
      if (!source.is_padding) spec.values.fill_expert_row(context.rank(), source, bytes);
    }
    CombineInput input;
    input.rows = output->x.view();
    const auto combined = combine(group, output->handle, input);
    if (!context.expect_ok(combined.status(), "combine")) return;
    context.expect(!combined->staged, "rows in the arena were staged");
    context.expect_nothing(
        check_combine(oracle, combine_problem(spec), context.rank(), combined->out), "combine");
  });
}

TEST(Combine, LeavesTheExpertsRowsAlone) {
  const Problem problem = sample_problem(Layout::kExpertMajor);
  check_problem(problem, [oracle = Oracle(problem)](RankContext& context, Group& group) {
    const auto output = checked_dispatch(context, group, oracle);
    if (!output) return;
    for (const CombineWay way : {CombineWay::kPull, CombineWay::kPush}) {
      const ExpertRows rows(group, oracle, {});
      const auto bytes = static_cast<std::size_t>(rows.view().num_elems() * 2);
      const auto* data = static_cast<const std::byte*>(rows.view().data);
      const std::vector<std::byte> before(data, data + bytes);
      CombineInput input;
      input.rows = rows.view();
      CombineOptions options;
      options.way = way;
      context.expect_ok(combine(group, output->handle, input, options).status(), "combine");
      context.expect(bytes == 0 || std::memcmp(before.data(), data, bytes) == 0,
                     "combine changed its input");
    }
  });
}

}  // namespace
}  // namespace ep::test
