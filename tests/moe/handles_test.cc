// SPDX-License-Identifier: Apache-2.0
// Tests of handles: many alive at once, used in any order, dispatched again, and outputs that stay
// as they are.
#include "tests/moe/sample_problems.h"
#include "tests/support/moe_ops.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>

namespace ep::test {
namespace {

constexpr int kNumRanks = 3;
constexpr int kMaxAlive = 6;

struct Alive {
  const Oracle* oracle = nullptr;
  DispatchOutput output{};
};

/// Every rank draws the same order.
class HandleUser {
 public:
  HandleUser(RankContext& context, Group& group, const std::vector<Oracle>& oracles)
      : context_(context), group_(group), oracles_(oracles) {}

  bool act(int step) {
    const std::int64_t action = uniform(random_, 0, 5);
    if (alive_.empty() || (action == 0 && alive_.size() < kMaxAlive)) return open(step);
    Alive& chosen = alive_[static_cast<std::size_t>(
        uniform(random_, 0, static_cast<std::int64_t>(alive_.size()) - 1))];
    if (action == 1) return close(chosen);
    return use(chosen, action);
  }

  /// Rows of all outputs that are still alive.
  void check_outputs() {
    for (const Alive& entry : alive_) {
      context_.expect_nothing(check_dispatch(*entry.oracle, context_.rank(), entry.output),
                              "an older output");
    }
  }

 private:
  bool open(int step) {
    const Oracle& oracle = oracles_[static_cast<std::size_t>(step) % oracles_.size()];
    auto output = checked_dispatch(context_, group_, oracle);
    if (output) alive_.push_back({&oracle, *std::move(output)});
    return !alive_.empty() && alive_.back().oracle == &oracle;
  }

  bool close(Alive& chosen) {
    std::swap(chosen, alive_.back());
    alive_.pop_back();
    return true;
  }

  bool use(const Alive& chosen, std::int64_t action) {
    const DispatchHandle& handle = chosen.output.handle;
    if (action == 2)
      return checked_combine(context_, group_, *chosen.oracle, handle, {}).has_value();
    if (action == 3) return checked_dispatch_backward(context_, group_, *chosen.oracle, handle, {});
    if (action == 4) return checked_combine_backward(context_, group_, *chosen.oracle, handle, {});
    return checked_dispatch_cached(context_, group_, *chosen.oracle, handle).has_value();
  }

  RankContext& context_;
  Group& group_;
  const std::vector<Oracle>& oracles_;
  Random random_{99};
  std::vector<Alive> alive_;
};

std::vector<Oracle> sample_oracles(int count) {
  std::vector<Oracle> oracles;
  for (int seed = 1; seed <= count; ++seed) {
    oracles.emplace_back(
        sample_problem(kLayouts[seed % 2], kNumRanks, static_cast<std::uint64_t>(seed)));
  }
  return oracles;
}

std::vector<Problem> problems_of(const std::vector<Oracle>& oracles) {
  std::vector<Problem> problems;
  for (const Oracle& oracle : oracles) problems.push_back(oracle.problem());
  return problems;
}

TEST(Handles, ManyMayBeAliveAndUsedInAnyOrder) {
  const std::vector<Oracle> oracles = sample_oracles(20);
  const int num_steps = scaled_rounds(200, 5000);
  check_group({.num_ranks = kNumRanks, .limit = std::chrono::seconds(300 * kSanitizerSlowdown)},
              config_for(problems_of(oracles)), [&](RankContext& context, Group& group) {
                HandleUser user(context, group, oracles);
                for (int step = 0; step < num_steps; ++step) {
                  if (!user.act(step)) return;
                  if (step % 10 == 0) user.check_outputs();
                }
              });
}

TEST(Handles, DispatchesMayPrecedeTheirCombinesInAnyNesting) {
  const std::vector<Oracle> oracles = sample_oracles(4);
  check_group({.num_ranks = kNumRanks}, config_for(problems_of(oracles)),
              [&](RankContext& context, Group& group) {
                for (const std::vector<std::size_t>& order :
                     {std::vector<std::size_t>{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}}) {
                  std::vector<DispatchHandle> handles;
                  for (const Oracle& oracle : oracles) {
                    const auto output = checked_dispatch(context, group, oracle);
                    if (!output) return;
                    handles.push_back(output->handle);
                  }
                  for (const std::size_t at : order)
                    checked_combine(context, group, oracles[at], handles[at], {});
                }
              });
}

TEST(Handles, MayBeUsedAfterTheOutputsAreGone) {
  const std::vector<Oracle> oracles = sample_oracles(2);
  check_group({.num_ranks = kNumRanks}, config_for(problems_of(oracles)),
              [&](RankContext& context, Group& group) {
                for (const Oracle& oracle : oracles) {
                  std::optional<DispatchHandle> handle;
                  if (auto output = checked_dispatch(context, group, oracle))
                    handle = output->handle;
                  if (!handle) return;
                  poison_pool(context, group, 1 << 16);
                  checked_combine(context, group, oracle, *handle, {});
                  const DispatchHandle copy = *handle;
                  handle.reset();
                  checked_combine_backward(context, group, oracle, copy, {});
                }
              });
}

class CachedDispatch : public ::testing::TestWithParam<Layout> {};

INSTANTIATE_TEST_SUITE_P(Layouts,
                         CachedDispatch,
                         ::testing::ValuesIn(kLayouts),
                         [](const auto& layout) {
                           return layout.param == Layout::kFlat ? "flat" : "expert_major";
                         });

/// The same routing with other weights and another call number, `count` times.
std::vector<Oracle> later_calls(Problem problem, int count) {
  std::vector<Oracle> oracles;
  Random random(3);
  for (int call = 1; call <= count; ++call) {
    problem.call = static_cast<std::uint32_t>(call);
    for (RankTokens& rank : problem.routing.ranks) {
      for (float& weight : rank.topk_weights)
        weight = static_cast<float>(uniform(random, 1, 1000)) / 1024.0F;
    }
    oracles.emplace_back(problem);
  }
  return oracles;
}

void check_cached(const Problem& problem, const DispatchSpec& spec) {
  check_problem(
      problem, [&spec, oracles = later_calls(problem, 10)](RankContext& context, Group& group) {
        const auto first = checked_dispatch(context, group, oracles[0], spec);
        if (!first) return;
        for (const Oracle& oracle : oracles) {
          const auto again = checked_dispatch_cached(context, group, oracle, first->handle, spec);
          if (!again || !checked_combine(context, group, oracle, again->handle, {})) return;
        }
      });
}

TEST_P(CachedDispatch, MovesNewRowsWithTheSameRouting) {
  check_cached(sample_problem(GetParam()), {});
}

TEST_P(CachedDispatch, DropsTheSameRowsAndWritesIntoGivenOutputs) {
  for (const std::int64_t percent : {50, 100, 120}) {
    Problem problem = sample_problem(GetParam());
    const Oracle exact(problem);
    for (int rank = 0; rank < kNumRanks; ++rank) {
      problem.capacity.emplace_back(exact.rank(rank).num_needed() * percent / 100);
    }
    for (const CopyWay way : {CopyWay::kSender, CopyWay::kReceiver}) {
      check_cached(problem, {.copy_way = way, .gives_buffers = true});
    }
  }
}

TEST_P(CachedDispatch, MayHaveAnotherRowFormat) {
  Problem problem = sample_problem(GetParam());
  Problem other = problem;
  set_row_format(other, DType::kFp8E4M3, 64);
  other.num_scales = 4;
  other.call = 2;
  check_problem(problem, [first = Oracle(problem), second = Oracle(other)](RankContext& context,
                                                                           Group& group) {
    const auto output = checked_dispatch(context, group, first);
    if (output) checked_dispatch_cached(context, group, second, output->handle);
  });
}

}  // namespace
}  // namespace ep::test
