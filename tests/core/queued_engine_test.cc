// SPDX-License-Identifier: Apache-2.0
// Calls on an engine that only queues operations, as a GPU does: what they wait for, what they
// read, and how errors come late.
#include "core/combine_call.h"
#include "core/dispatch_call.h"
#include "core/group_state.h"
#include "core/host_engine.h"
#include "fabric/host/arena.h"
#include "tests/support/moe_checks.h"
#include "tests/support/moe_inputs.h"
#include "tests/support/ranks.h"
#include "tests/support/routing_cases.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace ep::test {
namespace {

constexpr int kNumRanks = 3;
constexpr int kFaultyRank = 1;
constexpr std::int64_t kTokens = 40;
constexpr std::int64_t kCapacity = kNumRanks * kTokens;

/// The host's, but the library is told that launches have not ended when they return; counts.
class QueuedEngine final : public core::Engine {
 public:
  int num_launches = 0;
  int num_waits = 0;
  int num_reads = 0;
  int num_uploads = 0;
  bool captures = false;
  const void* foreign = nullptr;  ///< memory that roles cannot reach
  std::vector<std::shared_ptr<const void>> retained;

  bool is_synchronous() const override { return false; }
  Status begin(Stream stream) override { return host_.begin(stream); }
  void end() override { host_.end(); }
  bool is_capturing() const override { return captures; }
  void retain(std::shared_ptr<const void> object) override {
    retained.push_back(std::move(object));
  }
  Status launch(const intranode::DispatchParams& params, int num_sms, Stream stream) override {
    ++num_launches;
    return host_.launch(params, num_sms, stream);
  }
  Status launch(const intranode::CombineParams& params, int num_sms, Stream stream) override {
    ++num_launches;
    return host_.launch(params, num_sms, stream);
  }
  Status fill_zero(void* dst, std::int64_t bytes, Stream stream) override {
    return host_.fill_zero(dst, bytes, stream);
  }
  Status upload(void* dst, const void* src, std::int64_t bytes, Stream stream) override {
    ++num_uploads;
    return host_.upload(dst, src, bytes, stream);
  }
  Status wait(Stream stream) override {
    ++num_waits;
    return host_.wait(stream);
  }
  Status read(void* dst, const void* src, std::int64_t bytes) override {
    ++num_reads;
    return host_.read(dst, src, bytes);
  }
  Status write(void* dst, const void* src, std::int64_t bytes) override {
    return host_.write(dst, src, bytes);
  }
  Status check_memory(const void* address) const override {
    if (address != foreign) return {};
    return Status(Errc::kInvalidArgument, "lies elsewhere");
  }
  bool needs_aligned_sums() const override { return true; }
  Stream own_stream() const override { return {}; }
  layout::OpReport& report() override { return host_.report(); }
  int max_sms() const override { return 2; }
  int suggest_sms(const OpShape& /*shape*/) const override { return 2; }

 private:
  core::HostEngine host_;
};

/// A rank whose group runs on a QueuedEngine.
struct Rank {
  RankContext& context;
  const Oracle& oracle;
  core::GroupState& state;
  QueuedEngine& engine;

  DispatchOptions options() const {
    return {.layout = oracle.problem().layout, .experts = map_of(oracle.problem())};
  }
  Result<DispatchOutput> dispatch(const DispatchInput& input, const DispatchOptions& options) {
    return core::DispatchCall(state, {.input = input, .options = options}).run();
  }
  Status combine(const DispatchOutput& dispatched) {
    return core::CombineCall(state,
                             {.handle = dispatched.handle, .input = {.rows = dispatched.x.view()}})
        .run()
        .status();
  }
  /// A right dispatch whose result is checked, and a combine.
  void expect_a_good_round() {
    const RankInputs inputs(oracle.problem(), context.rank());
    const auto output = dispatch(inputs.views(), options());
    if (!context.expect_ok(output.status(), "dispatch")) return;
    context.expect_nothing(check_dispatch(oracle, context.rank(), *output), "dispatch");
    context.expect_ok(combine(*output), "combine");
    context.expect_ok(state.take_status(), "status");
  }
};

Problem make_problem(Layout layout) {
  Problem problem{.routing = uniform_routing(kNumRanks, kTokens, 4, 6, 8), .layout = layout};
  return problem;
}

void on_queued_engines(const Problem& problem, const std::function<void(Rank&)>& body) {
  const Oracle oracle(problem);
  check_ranks({.num_ranks = kNumRanks}, [&](RankContext& context) {
    auto config = core::resolve_config(config_for(problem), kNumRanks);
    if (!context.expect_ok(config.status(), "config")) return;
    const auto layout = layout::make_control_layout(core::control_shape(config->config, kNumRanks));
    auto arena = fabric::HostArena::create(context.bootstrap(), layout.total_bytes,
                                           base::Deadline::after(config->timeout));
    if (!context.expect_ok(arena.status(), "arena")) return;
    auto engine = std::make_unique<QueuedEngine>();
    QueuedEngine& kept = *engine;
    core::GroupState state({*config, std::move(*arena), std::move(engine)});
    context.expect_ok(state.initialize(), "initialize");
    context.expect_ok(context.bootstrap().barrier(config->timeout), "barrier");
    Rank rank{context, oracle, state, kept};
    body(rank);
    context.expect_ok(context.bootstrap().barrier(config->timeout), "barrier");
  });
}

class QueuedEngineCalls : public ::testing::TestWithParam<Layout> {};

INSTANTIATE_TEST_SUITE_P(Layouts,
                         QueuedEngineCalls,
                         ::testing::Values(Layout::kFlat, Layout::kExpertMajor),
                         [](const auto& layout) {
                           return layout.param == Layout::kFlat ? "flat" : "expert_major";
                         });

TEST_P(QueuedEngineCalls, WithACapacityNothingIsAwaitedOrRead) {
  on_queued_engines(make_problem(GetParam()), [](Rank& rank) {
    const RankInputs inputs(rank.oracle.problem(), rank.context.rank());
    DispatchOptions options = rank.options();
    options.capacity = kCapacity * 4;
    const auto output = rank.dispatch(inputs.views(), options);
    if (!rank.context.expect_ok(output.status(), "dispatch")) return;
    rank.context.expect_ok(rank.combine(*output), "combine");
    rank.context.expect(rank.engine.num_launches == 2, "launches");
    rank.context.expect(rank.engine.num_waits == 0, "a call waited");
    rank.context.expect(rank.engine.num_reads == 0, "a call read memory of the device");
    rank.context.expect_ok(rank.state.take_status(), "status");
    rank.context.expect(rank.engine.num_reads == 0, "the status read memory of the device");
    rank.expect_a_good_round();
  });
}

TEST_P(QueuedEngineCalls, WithoutACapacityOneWaitGivesExactSizes) {
  on_queued_engines(make_problem(GetParam()), [](Rank& rank) {
    rank.expect_a_good_round();
    rank.context.expect(rank.engine.num_launches == 3, "launches");
    rank.context.expect(rank.engine.num_waits == 1, "waits");
    rank.context.expect(rank.engine.num_reads == 1, "reads");
  });
}

TEST_P(QueuedEngineCalls, AMapIsUploadedOnce) {
  on_queued_engines(make_problem(GetParam()), [](Rank& rank) {
    for (int round = 0; round < 3; ++round) rank.expect_a_good_round();
    rank.context.expect(rank.engine.num_uploads == 2, "uploads");
  });
}

TEST_P(QueuedEngineCalls, ARefusalThatComesLateIsReturnedOnceByTheStatus) {
  on_queued_engines(make_problem(GetParam()), [](Rank& rank) {
    RankInputs inputs(rank.oracle.problem(), rank.context.rank());
    DispatchInput input = inputs.views();
    std::vector<std::int64_t> idx(static_cast<std::size_t>(kTokens * 4), 0);
    idx[4 * 17 + 3] = 300;
    const bool is_faulty = rank.context.rank() == kFaultyRank;
    if (is_faulty) input.topk_idx = ConstTensorView(idx.data(), DType::kInt64, {kTokens, 4});
    DispatchOptions options = rank.options();
    options.capacity = kCapacity * 4;
    const auto output = rank.dispatch(input, options);
    if (!rank.context.expect_ok(output.status(), "a call that had returned")) return;
    for (int at = 0; at < 3; ++at)
      rank.context.expect(output->sizes.data<std::int64_t>()[at] == 0, "sizes of a refused call");
    const Status status = rank.state.take_status();
    rank.context.expect(status.code() == Errc::kInvalidArgument && status.peer() == kFaultyRank,
                        "late: " + status.to_string());
    const bool has_place = status.message().find("topk_idx[17,3]") != std::string::npos;
    rank.context.expect(has_place == is_faulty, "place: " + status.to_string());
    rank.context.expect_ok(rank.state.take_status(), "a second time");
    rank.context.expect_ok(rank.combine(*output), "a combine of what was refused");
    const Status of_combine = rank.state.take_status();
    rank.context.expect(of_combine.code() == Errc::kInvalidArgument &&
                            of_combine.message().find("handle") != std::string::npos,
                        "combine: " + of_combine.to_string());
    rank.expect_a_good_round();
  });
}

TEST_P(QueuedEngineCalls, ARefusalBehindAWaitIsReturnedByItsCallAlone) {
  on_queued_engines(make_problem(GetParam()), [](Rank& rank) {
    const RankInputs inputs(rank.oracle.problem(), rank.context.rank());
    DispatchInput input = inputs.views();
    if (rank.context.rank() == kFaultyRank) input.topk_idx = {};
    const Status status = rank.dispatch(input, rank.options()).status();
    rank.context.expect(status.code() == Errc::kInvalidArgument, status.to_string());
    rank.context.expect_ok(rank.state.take_status(), "a second time");
    rank.expect_a_good_round();
  });
}

TEST_P(QueuedEngineCalls, MemoryThatRolesCannotReachIsRefusedByName) {
  on_queued_engines(make_problem(GetParam()), [](Rank& rank) {
    const RankInputs inputs(rank.oracle.problem(), rank.context.rank());
    const DispatchInput input = inputs.views();
    if (rank.context.rank() == kFaultyRank) rank.engine.foreign = input.topk_weights.data;
    const Status status = rank.dispatch(input, rank.options()).status();
    rank.context.expect(status.code() == Errc::kInvalidArgument, status.to_string());
    const bool is_named = status.message().find("topk_weights") != std::string::npos;
    rank.context.expect(is_named, status.to_string());
    rank.engine.foreign = nullptr;
    rank.expect_a_good_round();
  });
}

TEST_P(QueuedEngineCalls, ACaptureWithoutACapacityLaunchesNothing) {
  on_queued_engines(make_problem(GetParam()), [](Rank& rank) {
    const RankInputs inputs(rank.oracle.problem(), rank.context.rank());
    rank.engine.captures = true;
    const Status status = rank.dispatch(inputs.views(), rank.options()).status();
    rank.context.expect(status.code() == Errc::kInvalidArgument &&
                            status.message().find("capacity") != std::string::npos,
                        status.to_string());
    rank.context.expect(rank.engine.num_launches == 0, "launches");
    rank.engine.captures = false;
    rank.expect_a_good_round();
  });
}

TEST_P(QueuedEngineCalls, UnderCaptureThePoolDoesNotGrowAndBlocksAreKept) {
  on_queued_engines(make_problem(GetParam()), [](Rank& rank) {
    const RankInputs inputs(rank.oracle.problem(), rank.context.rank());
    DispatchOptions options = rank.options();
    options.capacity = kCapacity * 4;
    rank.engine.captures = true;
    const Status status = rank.dispatch(inputs.views(), options).status();
    rank.context.expect(status.code() == Errc::kOutOfMemory &&
                            status.message().find("reserve(") != std::string::npos,
                        status.to_string());
    rank.context.expect(rank.engine.num_launches == 0, "launches");
    rank.context.expect_ok(rank.state.pool().reserve(1 << 20), "reserve");
    const int num_segments = rank.state.arena().num_segments();
    {
      const auto output = rank.dispatch(inputs.views(), options);
      rank.context.expect_ok(output.status(), "captured");
    }
    rank.context.expect(rank.state.arena().num_segments() == num_segments, "the pool grew");
    rank.context.expect(rank.state.pool().used_bytes() > 0, "the graph's blocks are free");
    rank.engine.retained.clear();
    rank.context.expect(rank.state.pool().used_bytes() == 0, "blocks outlive the graph");
    rank.engine.captures = false;
    rank.expect_a_good_round();
  });
}

}  // namespace
}  // namespace ep::test
