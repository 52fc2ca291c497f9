// SPDX-License-Identifier: Apache-2.0
// S13, S14, S16: captured operations replayed with other data, mixed with eager calls, in any legal
// order, one rank late; what a capture refuses; and inputs that are written late and overwritten
// early. Two ranks as processes.
#include "tests/gpu/graph_rank.h"
#include "tests/support/routing_cases.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace ep::test {
namespace {

constexpr int kNumRanks = 2;
constexpr int kNumProblems = 5;
constexpr std::int64_t kPoolBytes = std::int64_t{64} << 20;

Problem sample_of(Layout layout, std::uint64_t seed) {
  Random random(seed);
  RoutingShape shape{.num_ranks = kNumRanks, .num_tokens = {61, 128}, .topk = 4};
  shape.expert_to_rank = balanced_map(13, kNumRanks);
  shape.masked_percent = 10;
  shape.repeated_percent = 5;
  Problem problem{.routing = random_routing(shape, random), .layout = layout};
  problem.alignment = layout == Layout::kFlat ? 1 : 8;
  problem.hidden = 512;
  problem.call = static_cast<std::uint32_t>(seed);
  // Any routing of this shape fits.
  const std::int64_t most = (61 + 128) * (layout == Layout::kFlat ? 1 : 4) + 7 * 8;
  problem.capacity.assign(kNumRanks, most);
  return problem;
}

std::vector<Oracle> oracles_of(Layout layout) {
  std::vector<Oracle> oracles;
  for (int seed = 1; seed <= kNumProblems; ++seed)
    oracles.emplace_back(sample_of(layout, static_cast<std::uint64_t>(seed)));
  return oracles;
}

RowValues values_of(int round) { return {.seed = static_cast<std::uint64_t>(round + 1)}; }

/// Processes: on a GPU ranks fork only where a test insists.
void check_as_processes(const RankBody& body) {
  if (Device::count() == 0) GTEST_SKIP() << "needs a GPU";
  RanksOptions options{.num_ranks = kNumRanks, .launch = Launch::kForks};
  options.limit = std::chrono::seconds(80);
  options.while_running = [](std::span<const pid_t>) {};
  check_ranks(options, body);
}

class GraphUser {
 public:
  GraphUser(RankContext& context, GraphRank& rank) : context_(context), rank_(rank) {}

  /// Eager first: the first call of a shape may allocate.
  bool capture(const Oracle& oracle) {
    if (!context_.expect_ok(rank_.allocate_rows(), "rows")) return false;
    if (!use(oracle, 0, &GraphUser::dispatch_eagerly, &GraphUser::combine_eagerly)) return false;
    rank_.forget_output();
    Status status;
    dispatch_ = CapturedCall::record(
        context_, rank_.stream(), [&] { return rank_.dispatch(); }, status);
    if (!context_.expect_ok(status, "captured dispatch")) return false;
    captured_ = rank_.received();
    combine_ = CapturedCall::record(
        context_, rank_.stream(), [&] { return rank_.combine(); }, status);
    return context_.expect_ok(status, "captured combine") && !dispatch_.is_null() &&
           !combine_.is_null();
  }

  using Step = bool (GraphUser::*)();
  bool use(const Oracle& oracle, int round, Step dispatch, Step combine) {
    context_.step("round", round);
    const RowValues values = values_of(round);
    rank_.set_problem(oracle, values);
    const std::string where = "round " + std::to_string(round);
    return (this->*dispatch)() &&
           context_.expect_nothing(rank_.wrong_received(oracle), "dispatch, " + where) &&
           (this->*combine)() &&
           context_.expect_nothing(rank_.wrong_sums(oracle, values), "combine, " + where);
  }

  bool dispatch_eagerly() { return context_.expect_ok(rank_.dispatch(), "eager dispatch"); }
  bool combine_eagerly() { return context_.expect_ok(rank_.combine(), "eager combine"); }
  bool replay_dispatch() {
    rank_.use_output(*captured_);
    return context_.expect_nothing(dispatch_.launch(rank_.stream()), "dispatch graph");
  }
  bool replay_combine() {
    return context_.expect_nothing(combine_.launch(rank_.stream()), "combine graph");
  }

 private:
  RankContext& context_;
  GraphRank& rank_;
  CapturedCall dispatch_;
  CapturedCall combine_;
  std::optional<DispatchOutput> captured_;
};

class GpuGraphs : public testing::TestWithParam<Layout> {};

TEST_P(GpuGraphs, ReplaysWithNewDataEqualEagerCallsBetweenThem) {
  const std::vector<Oracle> oracles = oracles_of(GetParam());
  const int num_rounds = scaled_rounds(150, 1000);
  check_as_processes([&](RankContext& context) {
    GraphRank rank(context, oracles[0].problem(), kPoolBytes);
    if (!rank.is_ready()) return;
    GraphUser user(context, rank);
    if (!user.capture(oracles[0])) return;
    for (int round = 1; round <= num_rounds; ++round) {
      const Oracle& oracle = oracles[static_cast<std::size_t>(round) % oracles.size()];
      // One rank in turn is late.
      if (round % 8 == 0 && round / 8 % kNumRanks == context.rank())
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      const bool is_eager = round % 3 == 0;
      // A captured dispatch is also combined eagerly.
      const bool combines_eagerly = is_eager || round % 5 == 0;
      if (!user.use(oracle, round,
                    is_eager ? &GraphUser::dispatch_eagerly : &GraphUser::replay_dispatch,
                    combines_eagerly ? &GraphUser::combine_eagerly : &GraphUser::replay_combine))
        return;
    }
  });
}

TEST_P(GpuGraphs, OneDispatchServesManyReplaysOfItsCombine) {
  const std::vector<Oracle> oracles = oracles_of(GetParam());
  check_as_processes([&](RankContext& context) {
    GraphRank rank(context, oracles[0].problem(), kPoolBytes);
    if (!rank.is_ready()) return;
    GraphUser user(context, rank);
    if (!user.capture(oracles[0])) return;
    for (int round = 1; round < 12; ++round) {
      const Oracle& oracle = oracles[static_cast<std::size_t>(round / 2) % oracles.size()];
      const RowValues values = values_of(round);
      context.step("round", round);
      rank.set_problem(oracle, values);
      if (!user.replay_dispatch()) return;
      // Twice the same sums, and two dispatches without a combine between them.
      if (round % 2 == 0 && !user.replay_dispatch()) return;
      for (int time = 0; time < 1 + round % 3; ++time) {
        if (!user.replay_combine()) return;
      }
      if (!context.expect_nothing(rank.wrong_received(oracle), "dispatch") ||
          !context.expect_nothing(rank.wrong_sums(oracle, values), "combine"))
        return;
    }
  });
}

TEST_P(GpuGraphs, AFirstCallUnderCaptureIsRefusedAndTheGroupGoesOn) {
  const std::vector<Oracle> oracles = oracles_of(GetParam());
  check_as_processes([&](RankContext& context) {
    GraphRank rank(context, oracles[0].problem(), 0);
    if (!rank.is_ready()) return;
    Status status;
    static_cast<void>(CapturedCall::record(
        context, rank.stream(), [&] { return rank.dispatch(); }, status));
    context.expect(status.code() == Errc::kOutOfMemory &&
                       status.message().find("reserve(") != std::string::npos,
                   "an empty pool under capture: " + status.to_string());
    static_cast<void>(CapturedCall::record(
        context, rank.stream(), [&] { return rank.dispatch_of_exact_size(); }, status));
    context.expect(status.code() == Errc::kInvalidArgument,
                   "exact sizes under capture: " + status.to_string());
    GraphUser user(context, rank);
    if (!user.capture(oracles[0])) return;
    user.use(oracles[1], 1, &GraphUser::replay_dispatch, &GraphUser::replay_combine);
    user.use(oracles[2], 2, &GraphUser::replay_dispatch, &GraphUser::combine_eagerly);
    user.use(oracles[3], 3, &GraphUser::dispatch_eagerly, &GraphUser::combine_eagerly);
  });
}

TEST_P(GpuGraphs, InputsAreReadInTheOrderOfTheStream) {
  const std::vector<Oracle> oracles = oracles_of(GetParam());
  check_as_processes([&](RankContext& context) {
    GraphRank rank(context, oracles[0].problem(), kPoolBytes);
    if (!rank.is_ready() || !context.expect_ok(rank.allocate_rows(), "rows")) return;
    for (int round = 1; round < 8; ++round) {
      const Oracle& oracle = oracles[static_cast<std::size_t>(round) % oracles.size()];
      const RowValues values = values_of(round);
      context.step("round", round);
      rank.set_problem(oracle, values);
      rank.make_inputs_late(std::chrono::milliseconds(20));
      if (!context.expect_ok(rank.dispatch(), "dispatch")) return;
      rank.overwrite_inputs();
      if (!context.expect_ok(rank.combine(), "combine")) return;
      rank.overwrite_rows();
      if (!context.expect_nothing(rank.wrong_received(oracle), "dispatch") ||
          !context.expect_nothing(rank.wrong_sums(oracle, values), "combine"))
        return;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts,
                         GpuGraphs,
                         testing::Values(Layout::kFlat, Layout::kExpertMajor),
                         [](const auto& layout) {
                           return layout.param == Layout::kFlat ? "Flat" : "ExpertMajor";
                         });

}  // namespace
}  // namespace ep::test
