// SPDX-License-Identifier: Apache-2.0
// Launches of one rank that overlap, as graph replays on different streams do: an error, no hang
// and no wrong row.
#include "core/combine_call.h"
#include "core/dispatch_call.h"
#include "core/group_state.h"
#include "core/host_engine.h"
#include "fabric/host/arena.h"
#include "primitives/memory.h"
#include "tests/support/moe_checks.h"
#include "tests/support/moe_inputs.h"
#include "tests/support/ranks.h"
#include "tests/support/routing_cases.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace ep::test {
namespace {

constexpr int kNumRanks = 2;
constexpr int kOverlapping = 0;
constexpr std::int64_t kTokens = 40;
constexpr std::int64_t kCapacity = 4 * kNumRanks * kTokens;
/// Two channels with a route and a send lane each.
constexpr std::uint32_t kNumLanes = 4;
/// Long: what is noticed at once must not need it.
constexpr std::chrono::seconds kTimeout{20};

/// Every launch runs on a stream of its own, at once.
class StreamsEngine final : public core::Engine {
 public:
  ~StreamsEngine() override { join(); }

  bool is_synchronous() const override { return false; }
  Status begin(Stream /*stream*/) override { return {}; }
  void end() override {}
  bool is_capturing() const override { return false; }
  void retain(std::shared_ptr<const void> /*object*/) override {}
  Status launch(const intranode::DispatchParams& params, int num_sms, Stream stream) override {
    return start(params, num_sms, stream);
  }
  Status launch(const intranode::CombineParams& params, int num_sms, Stream stream) override {
    return start(params, num_sms, stream);
  }
  Status fill_zero(void* dst, std::int64_t bytes, Stream stream) override {
    return host_.fill_zero(dst, bytes, stream);
  }
  Status upload(void* dst, const void* src, std::int64_t bytes, Stream stream) override {
    return host_.upload(dst, src, bytes, stream);
  }
  Status wait(Stream /*stream*/) override {
    join();
    return {};
  }
  Status read(void* dst, const void* src, std::int64_t bytes) override {
    return host_.read(dst, src, bytes);
  }
  Status write(void* dst, const void* src, std::int64_t bytes) override {
    return host_.write(dst, src, bytes);
  }
  Status check_memory(const void* /*address*/) const override { return {}; }
  bool needs_aligned_sums() const override { return false; }
  Stream own_stream() const override { return {}; }
  layout::OpReport& report() override { return host_.report(); }
  int max_sms() const override { return 2; }
  int suggest_sms(const OpShape& /*shape*/) const override { return 2; }

  /// Launches once more what was launched last, as a second instance of a graph does.
  void replay() { last_(); }

 private:
  template <class Params>
  Status start(const Params& params, int num_sms, Stream stream) {
    last_ = [=, this] {
      streams_.emplace_back(
          [=] { static_cast<void>(core::HostEngine().launch(params, num_sms, stream)); });
    };
    last_();
    return {};
  }
  void join() {
    for (std::thread& stream : streams_) stream.join();
    streams_.clear();
  }

  core::HostEngine host_;
  std::function<void()> last_;
  std::vector<std::thread> streams_;
};

struct Rank {
  RankContext& context;
  const Oracle& oracle;
  core::GroupState& state;
  StreamsEngine& engine;
  std::vector<core::CombineResult> sums{};  // a launch may still write there

  Result<DispatchOutput> dispatch(const RankInputs& inputs) {
    const DispatchOptions options{.layout = oracle.problem().layout,
                                  .experts = map_of(oracle.problem()),
                                  .capacity = kCapacity};
    return core::DispatchCall(state, {.input = inputs.views(), .options = options}).run();
  }
  Status combine(const DispatchOutput& dispatched) {
    auto result = core::CombineCall(
                      state, {.handle = dispatched.handle, .input = {.rows = dispatched.x.view()}})
                      .run();
    if (!result.ok()) return result.status();
    sums.push_back(std::move(*result));
    return Status();
  }
  /// Until that many lanes are at work here.
  void await_lanes(std::uint32_t least) const {
    const auto* local = state.control<layout::LocalState>(state.layout().local);
    while (layout::busy_lanes(primitives::HostMemory::load_relaxed_gpu(&local->busy.value)) < least)
      std::this_thread::yield();
  }
  void meet() { context.expect_ok(context.bootstrap().barrier(kTimeout), "barrier"); }
  void expect_overlap() {
    const Status status = state.take_status();
    const bool is_told =
        status.code() == Errc::kAborted && status.peer() == kOverlapping &&
        status.message().find("another operation of the group") != std::string::npos;
    context.expect(is_told, "status: " + status.to_string());
  }
};

using RankBody = std::function<void(Rank&, const RankInputs&)>;

void on_streams(Layout layout, const RankBody& body) {
  const Problem problem{.routing = uniform_routing(kNumRanks, kTokens, 4, 6, 8), .layout = layout};
  const Oracle oracle(problem);
  check_ranks({.num_ranks = kNumRanks}, [&](RankContext& context) {
    GroupConfig wanted = config_for(problem);
    wanted.timeout = kTimeout;
    auto config = core::resolve_config(wanted, kNumRanks);
    if (!context.expect_ok(config.status(), "config")) return;
    const auto control =
        layout::make_control_layout(core::control_shape(config->config, kNumRanks));
    auto arena = fabric::HostArena::create(context.bootstrap(), control.total_bytes,
                                           base::Deadline::after(config->timeout));
    if (!context.expect_ok(arena.status(), "arena")) return;
    auto engine = std::make_unique<StreamsEngine>();
    StreamsEngine& kept = *engine;
    core::GroupState state({*config, std::move(*arena), std::move(engine)});
    context.expect_ok(state.initialize(), "initialize");
    Rank rank{context, oracle, state, kept};
    rank.meet();
    const RankInputs inputs(problem, context.rank());
    body(rank, inputs);
    context.expect_ok(kept.wait({}), "wait");
    rank.meet();
  });
}

/// A dispatch of the overlapping rank waits for its peer, which calls only after `second` has been
/// launched beside it and both have ended.
void expect_overlap_is_told(Layout layout,
                            const std::function<void(Rank&, const DispatchOutput&)>& second) {
  on_streams(layout, [&](Rank& rank, const RankInputs& inputs) {
    if (rank.context.rank() != kOverlapping) rank.meet();
    const auto start = std::chrono::steady_clock::now();
    const auto output = rank.dispatch(inputs);
    if (rank.context.rank() == kOverlapping) {
      if (rank.context.expect_ok(output.status(), "first")) second(rank, *output);
      rank.context.expect_ok(rank.engine.wait({}), "wait");
      rank.meet();
    }
    rank.context.expect_ok(rank.engine.wait({}), "wait");
    rank.expect_overlap();
    rank.context.expect(rank.dispatch(inputs).status().code() == Errc::kAborted,
                        "a later call of a failed group");
    rank.context.expect(std::chrono::steady_clock::now() - start < kTimeout / 2,
                        "only the deadline ended it");
  });
}

class Overlap : public ::testing::TestWithParam<Layout> {};

INSTANTIATE_TEST_SUITE_P(Layouts,
                         Overlap,
                         ::testing::Values(Layout::kFlat, Layout::kExpertMajor),
                         [](const auto& layout) {
                           return layout.param == Layout::kFlat ? "flat" : "expert_major";
                         });

TEST_P(Overlap, ASecondCallBesideTheFirstEndsTheGroup) {
  expect_overlap_is_told(GetParam(), [](Rank& rank, const DispatchOutput& first) {
    rank.await_lanes(1);
    rank.context.expect_ok(rank.combine(first), "second");
  });
}

TEST_P(Overlap, AReplayOfTheSameCallBesideItEndsTheGroup) {
  expect_overlap_is_told(GetParam(), [](Rank& rank, const DispatchOutput&) {
    rank.await_lanes(kNumLanes);
    rank.engine.replay();
  });
}

TEST_P(Overlap, LaunchesThatFollowOneAnotherAreRight) {
  on_streams(GetParam(), [](Rank& rank, const RankInputs& inputs) {
    for (int round = 0; round < 3; ++round) {
      const auto output = rank.dispatch(inputs);
      if (!rank.context.expect_ok(output.status(), "dispatch")) return;
      rank.context.expect_ok(rank.engine.wait({}), "wait");
      rank.context.expect_ok(rank.state.take_status(), "status");
      rank.context.expect_ok(rank.combine(*output), "combine");
      rank.context.expect_ok(rank.engine.wait({}), "wait");
      rank.context.expect_ok(rank.state.take_status(), "status");
    }
  });
}

}  // namespace
}  // namespace ep::test
