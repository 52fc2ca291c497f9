// SPDX-License-Identifier: Apache-2.0
// What an operation occupies of a GPU, and what it does when little of it is left: budgets, several
// ranks per GPU, a hog of SMs, launches that overlap.
#include "core/group_state.h"
#include "tests/gpu/gpu_streams.h"
#include "tests/moe/sample_problems.h"
#include "tests/support/moe_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace ep::test {
namespace {

/// Groups of this program are on GPUs, whatever the caller's environment says.
const bool kIsOnGpus = setenv("EP_TEST_BACKEND", "cuda", 1) == 0;

constexpr int kOverlapping = 0;
constexpr std::chrono::milliseconds kMeetingTime{30'000};
constexpr std::chrono::milliseconds kHogTime{5'000};

/// The SMs on which launches of a group run, from the CTAs' own %smid.
class PlacedCtas {
 public:
  PlacedCtas(RankContext& context, Group& group)
      : context_(context), state_(group.library().state()) {
    auto counts = group.library().allocate(DType::kInt32, {kMaxSmIds});
    if (!context.expect_ok(counts.status(), "counts")) return;
    counts_ = *counts;
    clear();
    state_.count_ctas(counts_.data<std::uint32_t>());
  }
  ~PlacedCtas() { state_.count_ctas(nullptr); }
  PlacedCtas(const PlacedCtas&) = delete;
  PlacedCtas& operator=(const PlacedCtas&) = delete;

  /// Of one launch of `num_sms` CTAs since the last call; waits for nothing.
  void expect_one_launch(int num_sms, const char* what) {
    Counts counts{};
    const Status status = state_.engine().read(counts.data(), counts_.view().data, sizeof(counts));
    if (!context_.expect_ok(status, what)) return;
    int num_ctas = 0;
    int num_used = 0;
    for (const std::uint32_t count : counts) {
      num_ctas += static_cast<int>(count);
      num_used += count > 0 ? 1 : 0;
    }
    const std::string found = std::string(what) + ": budget " + std::to_string(num_sms) + ", " +
                              std::to_string(num_ctas) + " CTAs on " + std::to_string(num_used) +
                              " SMs";
    context_.expect(num_used >= 1 && num_used <= num_sms && num_ctas == num_sms, found);
    clear();
  }

 private:
  static constexpr std::int64_t kMaxSmIds = 1024;
  using Counts = std::array<std::uint32_t, kMaxSmIds>;

  void clear() {
    const Counts zero{};
    context_.expect_ok(
        state_.engine().write(counts_.data<std::uint32_t>(), zero.data(), sizeof(zero)), "clear");
  }

  RankContext& context_;
  core::GroupState& state_;
  Tensor counts_;
};

/// With a capacity: an operation is one launch.
Problem problem_of(Layout layout, int num_ranks) {
  Problem problem = sample_problem(layout, num_ranks, 5);
  problem.capacity.assign(static_cast<std::size_t>(num_ranks), 4096);
  return problem;
}

/// Dispatch, combine and both backward directions, each within its budget.
void check_places(RankContext& context, Group& group, const Oracle& oracle, int num_sms) {
  PlacedCtas placed(context, group);
  CombineSpec spec{.num_sms = num_sms};
  const auto output = checked_dispatch(context, group, oracle, {.num_sms = num_sms});
  if (!output) return;
  placed.expect_one_launch(num_sms, "dispatch");
  for (const CombineWay way : {CombineWay::kPull, CombineWay::kPush}) {
    spec.way = way;
    if (!checked_combine(context, group, oracle, output->handle, spec)) return;
    placed.expect_one_launch(num_sms, "combine");
  }
  if (!checked_dispatch_backward(context, group, oracle, output->handle, spec)) return;
  placed.expect_one_launch(num_sms, "dispatch_backward");
  spec.weighted = oracle.problem().layout == Layout::kExpertMajor;
  if (!checked_combine_backward(context, group, oracle, output->handle, spec)) return;
  placed.expect_one_launch(num_sms, "combine_backward");
}

class OnGpus : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Device::count() == 0) GTEST_SKIP() << "needs a GPU";
  }
  static int num_gpus() { return Device::count(); }
};

using SmBudgetOnGpus = OnGpus;

TEST_F(SmBudgetOnGpus, CtasOfAnOperationUseNoMoreSmsThanItsBudget) {
  for (const Layout layout : kLayouts) {
    check_problems({problem_of(layout, std::max(num_gpus(), 2))},
                   [](RankContext& context, Group& group, const Oracle& oracle) {
                     for (const int num_sms : {1, 2, 7, 16, 24}) {
                       context.step("budget", num_sms);
                       check_places(context, group, oracle, num_sms);
                     }
                   });
  }
}

TEST_F(SmBudgetOnGpus, SeveralRanksPerGpuStayWithinTheirs) {
  for (const Layout layout : kLayouts) {
    check_problems({problem_of(layout, 4 * num_gpus())},
                   [](RankContext& context, Group& group, const Oracle& oracle) {
                     for (const int num_sms : {1, 5, 16}) {
                       context.step("budget", num_sms);
                       check_places(context, group, oracle, num_sms);
                     }
                   });
  }
}

TEST_F(SmBudgetOnGpus, RanksThatTakeMoreThanTheirGpuHasAreNoGroup) {
  const Problem problem = problem_of(Layout::kFlat, 2 * num_gpus());
  GroupConfig config = config_for(problem);
  config.num_sms = SmBudget::kMaxSms;  // all of a GPU, each
  check_ranks({.num_ranks = 2 * num_gpus()}, [&](RankContext& context) {
    const Status status = Group::create(context.bootstrap(), config).status();
    const bool has_numbers = status.message().find("share a device and take") != std::string::npos;
    context.expect(status.code() == Errc::kInvalidArgument && has_numbers, status.to_string());
  });
}

TEST_F(SmBudgetOnGpus, ACallBeyondItsShareIsRefusedAndTheGroupGoesOn) {
  check_problems({problem_of(Layout::kFlat, 2 * num_gpus())},
                 [](RankContext& context, Group& group, const Oracle& oracle) {
                   const RankInputs inputs(oracle.problem(), context.rank());
                   const DispatchOptions options{.experts = map_of(oracle.problem()),
                                                 .num_sms = SmBudget::kMaxSms};
                   const Status status = dispatch(group, inputs.views(), options).status();
                   context.expect(status.code() == Errc::kInvalidArgument &&
                                      status.message().find("num_sms") != std::string::npos,
                                  status.to_string());
                   checked_dispatch(context, group, oracle);
                 });
}

TEST_F(SmBudgetOnGpus, OneSmThatIsLeftSufficesBesideAHog) {
  const int num_devices = num_gpus();
  // CTAs of two ranks that wait for each other do not fit on one SM.
  if (num_devices < 2) GTEST_SKIP() << "needs 2 GPUs";
  const Problem problem = problem_of(Layout::kFlat, 2);
  check_problems({problem}, [&](RankContext& context, Group& group, const Oracle& oracle) {
    const auto meet = [&] {
      context.expect_ok(context.bootstrap().barrier(kMeetingTime), "barrier");
    };
    const auto run_round = [&] {
      const auto output = checked_dispatch(context, group, oracle, {.num_sms = 16});
      if (output) checked_combine(context, group, oracle, output->handle, {.num_sms = 16});
    };
    context.step("warm-up");
    context.expect_ok(group.reserve(std::int64_t{8} << 20), "reserve");
    run_round();
    meet();
    std::unique_ptr<SmHog> hog;
    if (context.rank() < num_devices) hog = std::make_unique<SmHog>(kHogTime);
    meet();
    if (hog) context.expect(hog->start(), "the hog did not get its SMs");
    meet();
    context.step("beside the hog");
    run_round();
    if (hog) context.expect(!hog->has_expired(), "went on only when the hog had gone");
    meet();
    hog.reset();
    context.step("without it");
    run_round();
  });
}

/// A dispatch of rows that nobody checks, on a stream, with a capacity.
class PlainDispatch {
 public:
  PlainDispatch(RankContext& context, Group& group) : group_(group.library()) {
    auto x = group_.allocate(DType::kBf16, {kTokens, kHidden});
    auto topk_idx = group_.allocate(DType::kInt64, {kTokens, kTopk});
    context.expect_ok(x.status(), "x");
    if (!context.expect_ok(topk_idx.status(), "topk_idx")) return;
    x_ = *x;
    topk_idx_ = *topk_idx;
    std::vector<std::int64_t> experts(kTokens * kTopk);
    for (std::size_t at = 0; at < experts.size(); ++at)
      experts[at] = static_cast<std::int64_t>(at) % kExperts;
    context.expect_ok(group_.state().engine().write(topk_idx_.data<std::int64_t>(), experts.data(),
                                                    kTokens * kTopk * sizeof(std::int64_t)),
                      "experts");
    context.expect_ok(group_.reserve(std::int64_t{64} << 20), "reserve");
  }

  Result<DispatchOutput> call(Stream stream) const {
    return ep::dispatch(group_, {.x = x_.view(), .topk_idx = topk_idx_.view()},
                        {.capacity = 4 * kTokens, .num_sms = 8, .stream = stream});
  }

  static GroupConfig config() {
    return {.max_tokens = kTokens,
            .max_hidden_bytes = 2 * kHidden,
            .max_topk = kTopk,
            .max_experts = kExperts,
            .timeout = std::chrono::milliseconds(20'000)};
  }

 private:
  static constexpr std::int64_t kTokens = 64;
  static constexpr std::int64_t kHidden = 512;
  static constexpr int kTopk = 2;
  static constexpr int kExperts = 8;

  ep::Group& group_;
  Tensor x_;
  Tensor topk_idx_;
};

/// The stream and the graphs of one rank.
struct Replays {
  GpuStream first_stream;
  GpuStream second_stream;
  GpuGraph first;
  GpuGraph second;
  GpuGraph::Instance first_instance{first};
  GpuGraph::Instance first_again{first};
  GpuGraph::Instance second_instance{second};

  explicit Replays(RankContext& context, const PlainDispatch& dispatch)
      : first(first_stream,
              [&] { context.expect_ok(dispatch.call(first_stream.get()).status(), "capture"); }),
        second(second_stream,
               [&] { context.expect_ok(dispatch.call(second_stream.get()).status(), "capture"); }) {
  }
};

/// Beside a replay of rank 0 that waits for its peer, `second` is launched; the peer comes when
/// both have ended.
void expect_overlap_is_told(
    const std::function<void(const Replays&, const PlainDispatch&)>& second) {
  const auto start = std::chrono::steady_clock::now();
  check_group({.num_ranks = 2}, PlainDispatch::config(), [&](RankContext& context, Group& group) {
    const auto meet = [&] {
      context.expect_ok(context.bootstrap().barrier(kMeetingTime), "barrier");
    };
    const PlainDispatch dispatch(context, group);
    {
      const GpuStream stream;
      context.expect_ok(dispatch.call(stream.get()).status(), "eager");
      stream.wait();
      context.expect_ok(group.status(), "eager");
    }
    const Replays replays(context, dispatch);
    meet();
    if (context.rank() != kOverlapping) meet();
    replays.first_instance.launch(replays.first_stream);
    if (context.rank() == kOverlapping) second(replays, dispatch);
    replays.first_stream.wait();
    replays.second_stream.wait();
    if (context.rank() == kOverlapping) meet();
    const Status status = group.status();
    context.expect(status.code() == Errc::kAborted && status.peer() == kOverlapping &&
                       status.message().find("another operation of the group") != std::string::npos,
                   status.to_string());
    meet();
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15))
      << "only the deadline ended it";
}

using OverlapOnGpus = OnGpus;

TEST_F(OverlapOnGpus, TwoGraphsAtOnceEndTheGroup) {
  expect_overlap_is_told([](const Replays& replays, const PlainDispatch&) {
    replays.second_instance.launch(replays.second_stream);
  });
}

TEST_F(OverlapOnGpus, TwoInstancesOfOneGraphAtOnceEndTheGroup) {
  expect_overlap_is_told([](const Replays& replays, const PlainDispatch&) {
    replays.first_again.launch(replays.second_stream);
  });
}

TEST_F(OverlapOnGpus, ACallBesideAReplayEndsTheGroup) {
  expect_overlap_is_told([](const Replays& replays, const PlainDispatch& dispatch) {
    const auto output = dispatch.call(replays.second_stream.get());
    EXPECT_TRUE(output.ok()) << output.status().to_string();
  });
}

TEST_F(OverlapOnGpus, ReplaysThatFollowOneAnotherAreRight) {
  check_group({.num_ranks = 2}, PlainDispatch::config(), [](RankContext& context, Group& group) {
    const PlainDispatch dispatch(context, group);
    const GpuStream stream;
    context.expect_ok(dispatch.call(stream.get()).status(), "eager");
    // Ranks of one GPU share the driver's locks: one that instantiates a graph beside its own
    // kernel keeps the other from launching.
    stream.wait();
    const Replays replays(context, dispatch);
    for (int round = 0; round < 20; ++round) {
      replays.first_instance.launch(stream);
      context.expect_ok(dispatch.call(stream.get()).status(), "eager");
      replays.second_instance.launch(stream);
      replays.first_again.launch(stream);
    }
    stream.wait();
    context.expect_ok(group.status(), "status");
    context.expect_ok(context.bootstrap().barrier(kMeetingTime), "barrier");
  });
}

}  // namespace
}  // namespace ep::test
