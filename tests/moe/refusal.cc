// SPDX-License-Identifier: Apache-2.0
// One rank makes a bad call: all get kInvalidArgument, the messages say why and who, and the group
// goes on.
#include "tests/moe/refusal.h"

#include <utility>

namespace ep::test {
namespace {

constexpr std::int64_t kTokens = 40;
constexpr int kTopk = 4;
constexpr std::int64_t kHidden = 64;

/// Checks the status of the bad call on one rank.
using StatusCheck = std::function<void(RankContext&, const Status&)>;

void expect_mentions(RankContext& context,
                     const Status& status,
                     const std::vector<std::string>& mentions) {
  for (const std::string& mention : mentions) {
    context.expect(status.message().find(mention) != std::string::npos,
                   "no '" + mention + "' in: " + status.to_string());
  }
}

void run_bad_call(const Problem& problem, const CallBody& body, const StatusCheck& check) {
  const Oracle oracle(problem);
  GroupConfig config = config_for(problem);
  config.max_topk = 32;
  config.max_hidden_bytes = 256;
  check_group({.num_ranks = kRefusalRanks}, config, [&](RankContext& context, Group& group) {
    const auto dispatched = checked_dispatch(context, group, oracle);
    if (!dispatched) return;
    Scratch scratch;
    context.step("bad call");
    check(context,
          body({context, group, oracle, *dispatched, scratch}, context.rank() == kFaultyRank));
    context.expect_ok(group.status(), "the group after a refused call");
    const auto again = checked_dispatch(context, group, oracle);
    if (again) checked_combine(context, group, oracle, again->handle, {});
  });
}

/// Rows, weights and bias that are right for the problem.
struct RightArguments {
  explicit RightArguments(const Call& call)
      : inputs(call.oracle.problem(), call.context.rank()),
        rows(call.group, call.oracle, {}),
        token_rows(static_cast<std::size_t>(kTokens * kHidden * 2)) {}

  ConstTensorView token_view() const {
    return {token_rows.data(), DType::kBf16, {kTokens, kHidden}};
  }

  RankInputs inputs;
  ExpertRows rows;
  std::vector<std::byte> token_rows;
};

using DispatchRun =
    std::function<Status(const Call&, const DispatchInput&, const DispatchOptions&)>;

CallBody dispatch_body(const SpoilDispatch& spoil, const DispatchRun& run) {
  return [spoil, run](const Call& call, bool is_spoiled) {
    const Problem& problem = call.oracle.problem();
    const RankInputs inputs(problem, call.context.rank());
    DispatchInput input = inputs.views();
    DispatchOptions options;
    options.layout = problem.layout;
    options.alignment = problem.alignment;
    options.experts = map_of(problem);
    if (is_spoiled) spoil(call, input, options);
    return run(call, input, options);
  };
}

}  // namespace

Problem refusal_problem(Layout layout) {
  Problem problem{.routing = uniform_routing(kRefusalRanks, kTokens, kTopk, 6, 8),
                  .layout = layout};
  problem.hidden = kHidden;
  return problem;
}

void expect_refusal(const Problem& problem,
                    const CallBody& body,
                    const std::vector<std::string>& mentions) {
  run_bad_call(problem, body, [&](RankContext& context, const Status& status) {
    context.expect(status.code() == Errc::kInvalidArgument,
                   "expected kInvalidArgument, got: " + status.to_string());
    if (context.rank() == kFaultyRank) return expect_mentions(context, status, mentions);
    context.expect(status.peer() == kFaultyRank, "peer() is " + std::to_string(status.peer()));
    expect_mentions(context, status, {"rank " + std::to_string(kFaultyRank)});
  });
}

void expect_disagreement(const Problem& problem,
                         const CallBody& body,
                         const std::vector<std::string>& mentions) {
  run_bad_call(problem, body, [&](RankContext& context, const Status& status) {
    context.expect(status.code() == Errc::kInvalidArgument,
                   "expected kInvalidArgument, got: " + status.to_string());
    expect_mentions(context, status, mentions);
    expect_mentions(context, status, {"rank " + std::to_string(kFaultyRank)});
  });
}

CallBody spoiled_dispatch(const SpoilDispatch& spoil) {
  return dispatch_body(
      spoil, [](const Call& call, const DispatchInput& input, const DispatchOptions& options) {
        return dispatch(call.group, input, options).status();
      });
}

CallBody spoiled_cached(const SpoilDispatch& spoil) {
  const auto run = [](const Call& call, const DispatchInput& input,
                      const DispatchOptions& options) {
    return dispatch_cached(call.group, call.dispatched.handle, input, options).status();
  };
  // Right cached calls have no topk_idx, so every rank drops it before the faulty one spoils its
  // call.
  return [spoil, run](const Call& call, bool is_spoiled) {
    const auto drop_and_spoil = [&](const Call& same, DispatchInput& input,
                                    DispatchOptions& options) {
      input.topk_idx = {};
      if (is_spoiled) spoil(same, input, options);
    };
    return dispatch_body(drop_and_spoil, run)(call, true);
  };
}

CallBody spoiled_combine(const std::function<void(const Call&, CombineArguments&)>& spoil) {
  return [spoil](const Call& call, bool is_spoiled) {
    const RightArguments right(call);
    CombineArguments arguments{.handle = call.dispatched.handle};
    arguments.input.rows = right.rows.view();
    if (is_spoiled) spoil(call, arguments);
    return combine(call.group, arguments.handle, arguments.input, arguments.options).status();
  };
}

CallBody spoiled_dispatch_backward(
    const std::function<void(const Call&, DispatchGradArguments&)>& spoil) {
  return [spoil](const Call& call, bool is_spoiled) {
    const RightArguments right(call);
    DispatchGradArguments arguments{.handle = call.dispatched.handle};
    arguments.input.grad_x = right.rows.view();
    if (is_spoiled) spoil(call, arguments);
    return dispatch_backward(call.group, arguments.handle, arguments.input).status();
  };
}

CallBody spoiled_combine_backward(
    const std::function<void(const Call&, CombineGradArguments&)>& spoil) {
  return [spoil](const Call& call, bool is_spoiled) {
    const RightArguments right(call);
    CombineGradArguments arguments{.handle = call.dispatched.handle};
    arguments.input.grad_out = right.token_view();
    if (call.oracle.problem().layout == Layout::kExpertMajor) {
      arguments.input.topk_weights = right.inputs.topk_weights();
      arguments.input.rows = right.rows.view();
    }
    if (is_spoiled) spoil(call, arguments);
    return combine_backward(call.group, arguments.handle, arguments.input).status();
  };
}

}  // namespace ep::test
