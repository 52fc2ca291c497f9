// SPDX-License-Identifier: Apache-2.0
// Ranks whose calls are right by themselves but differ: an error on all ranks, then the group goes
// on.
#include "tests/moe/refusal.h"

#include <gtest/gtest.h>

namespace ep::test {
namespace {

class Disagreement : public ::testing::TestWithParam<Layout> {
 protected:
  void disagree(const SpoilDispatch& spoil, const std::vector<std::string>& mentions) const {
    expect_disagreement(refusal_problem(GetParam()), spoiled_dispatch(spoil), mentions);
  }
};

INSTANTIATE_TEST_SUITE_P(Layouts,
                         Disagreement,
                         ::testing::ValuesIn(kLayouts),
                         [](const auto& layout) {
                           return layout.param == Layout::kFlat ? "flat" : "expert_major";
                         });

TEST_P(Disagreement, OnTheOperation) {
  const auto body = [](const Call& call, bool is_spoiled) {
    if (is_spoiled) return spoiled_combine({})(call, false);
    return spoiled_dispatch({})(call, false);
  };
  expect_disagreement(refusal_problem(GetParam()), body, {"operation", "dispatch", "combine"});
}

TEST_P(Disagreement, OnForwardAndBackward) {
  const auto body = [](const Call& call, bool is_spoiled) {
    if (is_spoiled) return spoiled_dispatch_backward({})(call, false);
    return spoiled_combine({})(call, false);
  };
  expect_disagreement(refusal_problem(GetParam()), body,
                      {"operation", "dispatch_backward", "combine"});
}

TEST_P(Disagreement, OnTheLayout) {
  const auto spoil = [](const Call&, DispatchInput&, DispatchOptions& options) {
    options.layout = options.layout == Layout::kFlat ? Layout::kExpertMajor : Layout::kFlat;
  };
  disagree(spoil, {"layout", "rank 0"});
}

TEST_P(Disagreement, OnTheHiddenSize) {
  disagree([](const Call&, DispatchInput& input, DispatchOptions&) { input.x.shape[1] = 56; },
           {"128", "112", "rank 0"});
}

TEST_P(Disagreement, OnTheDtype) {
  disagree(
      [](const Call&, DispatchInput& input, DispatchOptions&) { input.x.dtype = DType::kFp16; },
      {"dtype", "bf16", "fp16", "rank 0"});
}

TEST_P(Disagreement, OnTheNumberOfChoices) {
  const auto spoil = [](const Call&, DispatchInput& input, DispatchOptions&) {
    input.topk_idx.shape[1] = 3;
    input.topk_weights.shape[1] = 3;
  };
  disagree(spoil, {"3", "4", "rank 0"});
}

TEST_P(Disagreement, OnTheNumberOfExperts) {
  const auto spoil = [](const Call& call, DispatchInput& input, DispatchOptions& options) {
    call.scratch.bytes.resize(40 * 4 * 8);
    input.topk_idx = ConstTensorView(call.scratch.bytes.data(), DType::kInt64, {40, 4});
    options.experts = ExpertMap::balanced(5, kRefusalRanks).value();
  };
  disagree(spoil, {"num_experts", "5", "6", "rank 0"});
}

TEST_P(Disagreement, OnTheExpertMap) {
  const auto spoil = [](const Call&, DispatchInput&, DispatchOptions& options) {
    options.experts = ExpertMap::create(std::vector<int>{2, 2, 1, 1, 0, 0}, kRefusalRanks).value();
  };
  disagree(spoil, {"map", "rank 0"});
}

TEST_P(Disagreement, OnTheTypeOfIndices) {
  const auto spoil = [](const Call& call, DispatchInput& input, DispatchOptions&) {
    call.scratch.bytes.resize(40 * 4 * 4);
    input.topk_idx = ConstTensorView(call.scratch.bytes.data(), DType::kInt32, {40, 4});
  };
  disagree(spoil, {"topk_idx", "8", "4", "rank 0"});
}

TEST_P(Disagreement, OnThePresenceOfWeights) {
  disagree([](const Call&, DispatchInput& input, DispatchOptions&) { input.topk_weights = {}; },
           {"topk_weights", "rank 0"});
}

TEST_P(Disagreement, OnThePresenceOfScales) {
  const auto spoil = [](const Call& call, DispatchInput& input, DispatchOptions&) {
    call.scratch.bytes.resize(40 * 8);
    input.scales = ConstTensorView(call.scratch.bytes.data(), DType::kFp32, {40, 2});
  };
  disagree(spoil, {"scale", "8", "rank 0"});
}

TEST(DisagreementExpertMajor, OnTheAlignment) {
  const auto spoil = [](const Call&, DispatchInput&, DispatchOptions& options) {
    options.alignment = 16;
  };
  expect_disagreement(refusal_problem(Layout::kExpertMajor), spoiled_dispatch(spoil),
                      {"alignment", "16", "1", "rank 0"});
}

using SpoilCombine = std::function<void(const Call&, CombineArguments&)>;

void disagree_in_combine(const SpoilCombine& spoil, const std::vector<std::string>& mentions) {
  expect_disagreement(refusal_problem(Layout::kExpertMajor), spoiled_combine(spoil), mentions);
}

TEST(DisagreementInCombine, OnTheHiddenSize) {
  disagree_in_combine([](const Call&, CombineArguments& call) { call.input.rows.shape[1] = 56; },
                      {"128", "112", "rank 0"});
}

TEST(DisagreementInCombine, OnTheDtype) {
  disagree_in_combine(
      [](const Call&, CombineArguments& call) { call.input.rows.dtype = DType::kFp16; },
      {"dtype", "bf16", "fp16", "rank 0"});
}

TEST(DisagreementInCombine, OnThePresenceOfWeights) {
  const auto spoil = [](const Call& call, CombineArguments& arguments) {
    call.scratch.bytes.resize(40 * 4 * 4);
    arguments.input.topk_weights =
        ConstTensorView(call.scratch.bytes.data(), DType::kFp32, {40, 4});
  };
  disagree_in_combine(spoil, {"topk_weights", "rank 0"});
}

TEST(DisagreementInCombine, OnTheWay) {
  const auto body = [](const Call& call, bool is_spoiled) {
    const auto choose = [&](const Call&, CombineArguments& arguments) {
      arguments.options.way = is_spoiled ? CombineWay::kPush : CombineWay::kPull;
    };
    return spoiled_combine(choose)(call, true);
  };
  expect_disagreement(refusal_problem(Layout::kExpertMajor), body, {"way", "rank 0"});
}

TEST(DisagreementInCombine, OnTheHandle) {
  // Two handles of the group, used crosswise.
  const auto body = [](const Call& call, bool is_spoiled) {
    Problem other = call.oracle.problem();
    other.alignment = 8;
    const Oracle other_oracle(other);
    const auto second = checked_dispatch(call.context, call.group, other_oracle);
    if (!second) return Status(Errc::kInternal, "the second dispatch failed");
    const ExpertRows rows(call.group, other_oracle, {});
    CombineInput input;
    input.rows = rows.view();
    return combine(call.group, is_spoiled ? second->handle : call.dispatched.handle, input)
        .status();
  };
  expect_disagreement(refusal_problem(Layout::kExpertMajor), body, {"alignment", "8", "rank 0"});
}

TEST(RepeatedRefusals, LeaveTheGroupUsable) {
  const Problem problem = refusal_problem(Layout::kExpertMajor);
  check_problem(problem, [oracle = Oracle(problem)](RankContext& context, Group& group) {
    for (int round = 0; round < 20; ++round) {
      context.step("round", round);
      const RankInputs inputs(oracle.problem(), context.rank());
      DispatchInput input = inputs.views();
      if (round % kRefusalRanks == context.rank()) input.x = {};
      DispatchOptions options;
      options.layout = Layout::kExpertMajor;
      options.experts = map_of(oracle.problem());
      const Status status = dispatch(group, input, options).status();
      context.expect(status.code() == Errc::kInvalidArgument, status.to_string());
      if (!checked_step(context, group, oracle, {}, {.weighted = true})) return;
    }
  });
}

TEST(RepeatedRefusals, OfAllRanksAtOnceAreReportedByEachForItself) {
  const Problem problem = refusal_problem(Layout::kFlat);
  check_problem(problem, [oracle = Oracle(problem)](RankContext& context, Group& group) {
    const Status status = dispatch(group, DispatchInput{}).status();
    context.expect(status.code() == Errc::kInvalidArgument, status.to_string());
    context.expect(
        status.message().find("rank " + std::to_string(context.rank())) != std::string::npos,
        status.to_string());
    checked_dispatch(context, group, oracle);
  });
}

}  // namespace
}  // namespace ep::test
