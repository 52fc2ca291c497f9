// SPDX-License-Identifier: Apache-2.0
// Every argument error of combine and of the backward directions, on one rank of three.
#include "tests/moe/refusal.h"

#include <gtest/gtest.h>

namespace ep::test {
namespace {

const std::byte* some_memory(const Call& call, std::size_t bytes) {
  call.scratch.bytes.resize(bytes);
  return call.scratch.bytes.data();
}

ConstTensorView weights_in(const Call& call, std::int64_t num_tokens, std::int64_t topk) {
  return ConstTensorView(some_memory(call, 1 << 16), DType::kFp32, {num_tokens, topk});
}

using SpoilCombine = std::function<void(const Call&, CombineArguments&)>;

class BadCombine : public ::testing::TestWithParam<Layout> {
 protected:
  void refuse(const SpoilCombine& spoil, const std::vector<std::string>& mentions) const {
    expect_refusal(refusal_problem(GetParam()), spoiled_combine(spoil), mentions);
  }
};

INSTANTIATE_TEST_SUITE_P(Layouts,
                         BadCombine,
                         ::testing::ValuesIn(kLayouts),
                         [](const auto& layout) {
                           return layout.param == Layout::kFlat ? "flat" : "expert_major";
                         });

TEST_P(BadCombine, TheHandleMustNotBeNull) {
  refuse([](const Call&, CombineArguments& call) { call.handle = {}; }, {"handle", "null"});
}

TEST_P(BadCombine, TheHandleMustBelongToTheGroup) {
  const auto body = [](const Call& call, bool is_spoiled) {
    auto other = Group::create(call.context.bootstrap(), call.group.config());
    if (!call.context.expect_ok(other.status(), "second group")) return other.status();
    const auto foreign = checked_dispatch(call.context, **other, call.oracle);
    if (!foreign) return Status(Errc::kInternal, "the second group's dispatch failed");
    const auto give = [&](const Call&, CombineArguments& arguments) {
      arguments.handle = foreign->handle;
    };
    return spoiled_combine(give)(call, is_spoiled);
  };
  expect_refusal(refusal_problem(GetParam()), body, {"handle", "group"});
}

TEST_P(BadCombine, RowsMustBeGiven) {
  refuse([](const Call&, CombineArguments& call) { call.input.rows = {}; }, {"rows", "null"});
  refuse([](const Call&, CombineArguments& call) { call.input.rows.data = nullptr; }, {"rows"});
}

TEST_P(BadCombine, RowsMustNotBeFewerThanReceived) {
  const auto spoil = [](const Call&, CombineArguments& call) { call.input.rows.shape[0] -= 1; };
  const Oracle oracle(refusal_problem(GetParam()));
  const std::int64_t num_rows = oracle.rank(kFaultyRank).num_needed();
  refuse(spoil, {"rows", std::to_string(num_rows), std::to_string(num_rows - 1)});
}

TEST_P(BadCombine, RowsMustBeReducible) {
  for (const DType dtype : {DType::kFp8E4M3, DType::kInt8, DType::kUInt8, DType::kInt32}) {
    refuse([dtype](const Call&, CombineArguments& call) { call.input.rows.dtype = dtype; },
           {"rows", name_of(dtype)});
  }
}

TEST_P(BadCombine, RowsMustBeMultiplesOfSixteenBytesAndAligned) {
  refuse([](const Call&, CombineArguments& call) { call.input.rows.shape[1] = 60; },
         {"rows", "120", "16"});
  refuse([](const Call&, CombineArguments& call) { call.input.rows.strides[1] = 2; },
         {"rows", "2"});
  const auto misaligned = [](const Call& call, CombineArguments& arguments) {
    arguments.input.rows.data = some_memory(call, 1 << 17) + 8;
  };
  refuse(misaligned, {"rows", "16"});
  refuse([](const Call&, CombineArguments& call) { call.input.rows.strides[0] = 68; },
         {"rows", "136", "16"});
}

TEST_P(BadCombine, RowsMustFitTheGroupsMaximum) {
  const auto spoil = [](const Call& call, CombineArguments& arguments) {
    const std::int64_t num_rows = arguments.input.rows.size(0);
    arguments.input.rows = ConstTensorView(
        some_memory(call, static_cast<std::size_t>(num_rows * 512)), DType::kBf16, {num_rows, 256});
  };
  refuse(spoil, {"rows", "512", "max_hidden_bytes = 256"});
}

TEST_P(BadCombine, BiasMustMatchTheOutput) {
  const auto bias = [](DType dtype, std::int64_t num_tokens, std::int64_t hidden) {
    return [=](const Call& call, CombineArguments& arguments) {
      arguments.input.bias =
          ConstTensorView(some_memory(call, 1 << 16), dtype, {num_tokens, hidden});
    };
  };
  refuse(bias(DType::kFp32, 40, 64), {"bias", "fp32", "bf16"});
  refuse(bias(DType::kBf16, 39, 64), {"bias", "[39, 64]", "40"});
  refuse(bias(DType::kBf16, 40, 56), {"bias", "[40, 56]", "64"});
}

TEST_P(BadCombine, TheOutputMustHaveTheRightTypeAndShape) {
  const auto out = [](DType dtype, std::int64_t num_tokens, std::int64_t hidden) {
    return [=](const Call& call, CombineArguments& arguments) {
      call.scratch.bytes.resize(1 << 16);
      arguments.options.out = TensorView(call.scratch.bytes.data(), dtype, {num_tokens, hidden});
    };
  };
  refuse(out(DType::kFp16, 40, 64), {"out", "fp16", "bf16"});
  refuse(out(DType::kBf16, 41, 64), {"out", "[41, 64]", "40"});
  refuse(out(DType::kBf16, 40, 72), {"out", "[40, 72]", "64"});
}

TEST_P(BadCombine, OutputRowsMustNotOverlap) {
  for (const std::int64_t stride : {0, 8, 56}) {
    const auto spoil = [stride](const Call& call, CombineArguments& arguments) {
      call.scratch.bytes.resize(1 << 16);
      arguments.options.out = TensorView(call.scratch.bytes.data(), DType::kBf16, {40, 64});
      arguments.options.out.strides[0] = stride;
    };
    refuse(spoil, {"out", "overlap", std::to_string(stride)});
  }
}

TEST_P(BadCombine, TheOutputMustNotOverlapTheInputs) {
  if (test_backend() == Backend::kCuda)
    GTEST_SKIP() << "each argument has a copy of its own on the GPU";
  const auto over_rows = [](const Call&, CombineArguments& arguments) {
    arguments.options.out =
        TensorView(const_cast<void*>(arguments.input.rows.data), DType::kBf16, {40, 64});
  };
  refuse(over_rows, {"out", "overlaps"});
  const auto over_bias = [](const Call& call, CombineArguments& arguments) {
    call.scratch.bytes.resize(1 << 16);
    arguments.input.bias = ConstTensorView(call.scratch.bytes.data(), DType::kBf16, {40, 64});
    arguments.options.out = TensorView(call.scratch.bytes.data() + 128, DType::kBf16, {40, 64});
  };
  refuse(over_bias, {"out", "overlaps"});
}

TEST_P(BadCombine, BudgetMustBeInItsRange) {
  refuse([](const Call&, CombineArguments& call) { call.options.num_sms = -1; }, {"num_sms", "-1"});
}

TEST_P(BadCombine, StreamMustBeThatOfAHostGroup) {
  if (test_backend() == Backend::kCuda)
    GTEST_SKIP() << "the driver ends a process for such a stream";
  refuse([](const Call& call,
            CombineArguments& arguments) { arguments.options.stream.handle = &call.scratch; },
         {"stream"});
}

TEST(BadCombineWeights, AreRefusedInAFlatLayout) {
  const auto spoil = [](const Call& call, CombineArguments& arguments) {
    arguments.input.topk_weights = weights_in(call, 40, 4);
  };
  expect_refusal(refusal_problem(Layout::kFlat), spoiled_combine(spoil),
                 {"topk_weights", "kExpertMajor"});
}

TEST(BadCombineWeights, MustMatchTheDispatch) {
  const auto spoil = [](const Call& call, CombineArguments& arguments) {
    arguments.input.topk_weights = weights_in(call, 40, 3);
  };
  expect_refusal(refusal_problem(Layout::kExpertMajor), spoiled_combine(spoil),
                 {"topk_weights", "[40, 3]", "4"});
}

TEST(BadDispatchBackward, TheHandleMustNotBeNull) {
  const auto spoil = [](const Call&, DispatchGradArguments& call) { call.handle = {}; };
  for (const Layout layout : kLayouts) {
    expect_refusal(refusal_problem(layout), spoiled_dispatch_backward(spoil), {"handle", "null"});
  }
}

TEST(BadDispatchBackward, GradientsMustHaveTheShapesOfTheDispatch) {
  const auto fewer_rows = [](const Call&, DispatchGradArguments& call) {
    call.input.grad_x.shape[0] -= 1;
  };
  const auto wrong_width = [](const Call& call, DispatchGradArguments& arguments) {
    arguments.input.grad_topk_weights = weights_in(call, arguments.input.grad_x.size(0), 3);
  };
  const auto wrong_dtype = [](const Call& call, DispatchGradArguments& arguments) {
    const std::int64_t num_rows = arguments.input.grad_x.size(0);
    arguments.input.grad_topk_weights =
        ConstTensorView(some_memory(call, 1 << 16), DType::kBf16, {num_rows});
  };
  const auto misaligned = [](const Call& call, DispatchGradArguments& arguments) {
    const std::int64_t num_rows = arguments.input.grad_x.size(0);
    arguments.input.grad_topk_weights =
        ConstTensorView(some_memory(call, 1 << 16) + 2, DType::kFp32, {num_rows});
  };
  for (const Layout layout : kLayouts) {
    const Problem problem = refusal_problem(layout);
    expect_refusal(problem, spoiled_dispatch_backward(misaligned),
                   {"grad_topk_weights", "not aligned to its elements of 4 bytes"});
    expect_refusal(problem, spoiled_dispatch_backward(fewer_rows), {"grad_x"});
    expect_refusal(problem, spoiled_dispatch_backward(wrong_width), {"grad_topk_weights"});
    expect_refusal(problem, spoiled_dispatch_backward(wrong_dtype),
                   {"grad_topk_weights", "bf16", "fp32"});
  }
}

using SpoilCombineGrad = std::function<void(const Call&, CombineGradArguments&)>;

void refuse_combine_grad(Layout layout,
                         const SpoilCombineGrad& spoil,
                         const std::vector<std::string>& mentions) {
  expect_refusal(refusal_problem(layout), spoiled_combine_backward(spoil), mentions);
}

TEST(BadCombineBackward, TheHandleMustNotBeNull) {
  for (const Layout layout : kLayouts) {
    refuse_combine_grad(layout, [](const Call&, CombineGradArguments& call) { call.handle = {}; },
                        {"handle", "null"});
  }
}

TEST(BadCombineBackward, TheGradientMustHaveARowPerToken) {
  const auto spoil = [](const Call&, CombineGradArguments& call) {
    call.input.grad_out.shape[0] = 39;
  };
  for (const Layout layout : kLayouts) refuse_combine_grad(layout, spoil, {"grad_out", "39", "40"});
}

TEST(BadCombineBackward, TheGradientMustBeReducible) {
  const auto spoil = [](const Call&, CombineGradArguments& call) {
    call.input.grad_out.dtype = DType::kFp8E4M3;
  };
  for (const Layout layout : kLayouts) refuse_combine_grad(layout, spoil, {"grad_out", "fp8_e4m3"});
}

TEST(BadCombineBackward, WeightsAndRowsComeTogether) {
  refuse_combine_grad(Layout::kExpertMajor,
                      [](const Call&, CombineGradArguments& call) { call.input.rows = {}; },
                      {"rows", "topk_weights"});
  refuse_combine_grad(Layout::kExpertMajor,
                      [](const Call&, CombineGradArguments& call) { call.input.topk_weights = {}; },
                      {"rows", "topk_weights"});
}

TEST(BadCombineBackward, WeightsAreRefusedInAFlatLayout) {
  const auto spoil = [](const Call& call, CombineGradArguments& arguments) {
    arguments.input.topk_weights = weights_in(call, 40, 4);
    arguments.input.rows = ConstTensorView(call.scratch.bytes.data(), DType::kBf16, {100, 64});
  };
  refuse_combine_grad(Layout::kFlat, spoil, {"topk_weights", "kExpertMajor"});
}

TEST(BadCombineBackward, RowsMustMatchTheGradient) {
  refuse_combine_grad(
      Layout::kExpertMajor,
      [](const Call&, CombineGradArguments& call) { call.input.rows.dtype = DType::kFp16; },
      {"rows", "fp16", "bf16"});
  refuse_combine_grad(
      Layout::kExpertMajor,
      [](const Call&, CombineGradArguments& call) { call.input.rows.shape[1] = 56; },
      {"rows", "56"});
  refuse_combine_grad(
      Layout::kExpertMajor,
      [](const Call&, CombineGradArguments& call) { call.input.rows.shape[0] -= 1; }, {"rows"});
}

}  // namespace
}  // namespace ep::test
