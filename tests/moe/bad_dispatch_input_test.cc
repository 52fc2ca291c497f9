// SPDX-License-Identifier: Apache-2.0
// Every argument error of dispatch and dispatch_cached, on one rank of three.
#include "tests/moe/refusal.h"

#include <ep/sm_budget.h>

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

namespace ep::test {
namespace {

/// A row-major copy of topk_idx as int64, which the test then changes.
std::int64_t* editable_idx(const Call& call, DispatchInput& input) {
  const std::vector<std::int64_t>& idx =
      call.oracle.problem().routing.ranks[static_cast<std::size_t>(call.context.rank())].topk_idx;
  call.scratch.bytes.resize(idx.size() * sizeof(std::int64_t));
  std::memcpy(call.scratch.bytes.data(), idx.data(), call.scratch.bytes.size());
  input.topk_idx = ConstTensorView(call.scratch.bytes.data(), DType::kInt64,
                                   {input.x.size(0), input.topk_idx.size(1)});
  return static_cast<std::int64_t*>(static_cast<void*>(call.scratch.bytes.data()));
}

const std::byte* some_memory(const Call& call, std::size_t bytes) {
  call.scratch.bytes.resize(bytes);
  return call.scratch.bytes.data();
}

Tensor allocated(const Call& call, DType dtype, std::initializer_list<std::int64_t> shape) {
  auto tensor = call.group.allocate(dtype, shape);
  return call.context.expect_ok(tensor.status(), "allocate") ? *tensor : Tensor();
}

class BadDispatch : public ::testing::TestWithParam<Layout> {
 protected:
  void refuse(const SpoilDispatch& spoil, const std::vector<std::string>& mentions) const {
    expect_refusal(refusal_problem(GetParam()), spoiled_dispatch(spoil), mentions);
  }
};

INSTANTIATE_TEST_SUITE_P(Layouts,
                         BadDispatch,
                         ::testing::ValuesIn(kLayouts),
                         [](const auto& layout) {
                           return layout.param == Layout::kFlat ? "flat" : "expert_major";
                         });

TEST_P(BadDispatch, AnExpertThatDoesNotExistIsNamedWithItsPosition) {
  const auto spoil = [](const Call& call, DispatchInput& input, DispatchOptions&) {
    editable_idx(call, input)[17 * 4 + 3] = 300;
  };
  refuse(spoil, {"topk_idx[17,3] = 300", "num_experts = 6"});
}

TEST_P(BadDispatch, TheFirstOfSeveralWrongExpertsIsNamed) {
  const auto spoil = [](const Call& call, DispatchInput& input, DispatchOptions&) {
    std::int64_t* idx = editable_idx(call, input);
    idx[39 * 4] = 6;
    idx[2 * 4 + 1] = std::numeric_limits<std::int64_t>::max();
    idx[30 * 4] = -7;
  };
  refuse(spoil, {"topk_idx[2,1] = 9223372036854775807", "num_experts = 6"});
}

TEST_P(BadDispatch, AnIndexBelowMinusOneIsRefused) {
  const auto spoil = [](const Call& call, DispatchInput& input, DispatchOptions&) {
    editable_idx(call, input)[0] = -2;
  };
  refuse(spoil, {"topk_idx[0,0] = -2"});
}

TEST_P(BadDispatch, AnIndexThatIsRightOnlyInItsLowHalfIsRefused) {
  const auto spoil = [](const Call& call, DispatchInput& input, DispatchOptions&) {
    editable_idx(call, input)[5] = (std::int64_t{1} << 32) + 1;
  };
  refuse(spoil, {"topk_idx[1,1] = 4294967297"});
}

TEST_P(BadDispatch, XMustBeGiven) {
  refuse([](const Call&, DispatchInput& input, DispatchOptions&) { input.x = {}; }, {"x", "null"});
}

TEST_P(BadDispatch, XWithRowsMustHaveData) {
  refuse([](const Call&, DispatchInput& input, DispatchOptions&) { input.x.data = nullptr; },
         {"x", "bf16[40, 64]"});
}

TEST_P(BadDispatch, XMustBeARowType) {
  refuse([](const Call&, DispatchInput& input, DispatchOptions&) { input.x.dtype = DType::kInt32; },
         {"x", "int32"});
}

TEST_P(BadDispatch, XMustHaveTwoDimensions) {
  const auto spoil = [](const Call&, DispatchInput& input, DispatchOptions&) {
    input.x = ConstTensorView(input.x.data, DType::kBf16, {40, 8, 8});
  };
  refuse(spoil, {"x", "bf16[40, 8, 8]"});
}

TEST_P(BadDispatch, RowsMustBeAMultipleOfSixteenBytes) {
  refuse([](const Call&, DispatchInput& input, DispatchOptions&) { input.x.shape[1] = 63; },
         {"x", "126", "16"});
  refuse([](const Call&, DispatchInput& input, DispatchOptions&) { input.x.shape[1] = 0; },
         {"x", "0"});
}

TEST_P(BadDispatch, RowsMustFitTheGroupsMaximum) {
  const auto spoil = [](const Call& call, DispatchInput& input, DispatchOptions&) {
    input.x = ConstTensorView(some_memory(call, 40 * 512), DType::kBf16, {40, 256});
  };
  refuse(spoil, {"x", "512", "max_hidden_bytes = 256"});
}

TEST_P(BadDispatch, ElementsOfARowMustBeAdjacent) {
  refuse([](const Call&, DispatchInput& input, DispatchOptions&) { input.x.strides[1] = 2; },
         {"x", "2"});
}

TEST_P(BadDispatch, RowsMustBeAligned) {
  const auto misaligned = [](const Call& call, DispatchInput& input, DispatchOptions&) {
    input.x.data = some_memory(call, 40 * 128 + 2) + 2;
  };
  refuse(misaligned, {"x", "16"});
  const auto odd_stride = [](const Call& call, DispatchInput& input, DispatchOptions&) {
    input.x.data = some_memory(call, 40 * 138);
    input.x.strides[0] = 69;
  };
  refuse(odd_stride, {"x", "138", "16"});
}

TEST_P(BadDispatch, ElementsMustBeAligned) {
  const auto idx = [](const Call& call, DispatchInput& input, DispatchOptions&) {
    input.topk_idx = ConstTensorView(some_memory(call, 40 * 32 + 4) + 4, DType::kInt64, {40, 4});
  };
  refuse(idx, {"topk_idx", "int64[40, 4]", "not aligned to its elements of 8 bytes"});
  const auto weights = [](const Call& call, DispatchInput& input, DispatchOptions&) {
    input.topk_weights = ConstTensorView(some_memory(call, 40 * 16 + 2) + 2, DType::kFp32, {40, 4});
  };
  refuse(weights, {"topk_weights", "not aligned to its elements of 4 bytes"});
  const auto scales = [](const Call& call, DispatchInput& input, DispatchOptions&) {
    input.scales = ConstTensorView(some_memory(call, 40 * 4 + 1) + 1, DType::kBf16, {40, 2});
  };
  refuse(scales, {"scales", "not aligned to its elements of 2 bytes"});
}

TEST_P(BadDispatch, TokensMustFitTheGroupsMaximum) {
  const auto spoil = [](const Call& call, DispatchInput& input, DispatchOptions&) {
    const std::byte* memory = some_memory(call, 41 * 128);
    input.x = ConstTensorView(memory, DType::kBf16, {41, 64});
    input.topk_idx = ConstTensorView(memory, DType::kInt64, {41, 4});
    input.topk_weights = ConstTensorView(memory, DType::kFp32, {41, 4});
  };
  refuse(spoil, {"41", "max_tokens = 40"});
}

TEST_P(BadDispatch, TopkIdxMustBeGivenAsIntegersForEveryToken) {
  refuse([](const Call&, DispatchInput& input, DispatchOptions&) { input.topk_idx = {}; },
         {"topk_idx", "null"});
  refuse([](const Call&, DispatchInput& input,
            DispatchOptions&) { input.topk_idx.dtype = DType::kFp32; },
         {"topk_idx", "fp32"});
  refuse([](const Call&, DispatchInput& input, DispatchOptions&) { input.topk_idx.shape[0] = 39; },
         {"topk_idx", "[39, 4]", "40"});
}

TEST_P(BadDispatch, TopkMustBeOneToThirtyTwo) {
  const auto spoil = [](std::int64_t topk) {
    return [topk](const Call& call, DispatchInput& input, DispatchOptions&) {
      input.topk_idx = ConstTensorView(some_memory(call, 40 * 33 * 8), DType::kInt64, {40, topk});
      input.topk_weights = {};
    };
  };
  refuse(spoil(33), {"topk_idx", "K = 33", "32"});
  refuse(spoil(0), {"topk_idx", "K = 0"});
}

TEST_P(BadDispatch, WeightsMustBeFp32OfTheShapeOfTopkIdx) {
  refuse([](const Call&, DispatchInput& input,
            DispatchOptions&) { input.topk_weights.dtype = DType::kBf16; },
         {"topk_weights", "bf16", "fp32"});
  refuse(
      [](const Call&, DispatchInput& input, DispatchOptions&) { input.topk_weights.shape[1] = 3; },
      {"topk_weights", "fp32[40, 3]", "4"});
}

TEST_P(BadDispatch, ScalesMustNotBeMoreThanElements) {
  const auto spoil = [](const Call& call, DispatchInput& input, DispatchOptions&) {
    input.scales = ConstTensorView(some_memory(call, 40 * 65 * 4), DType::kFp32, {40, 65});
  };
  refuse(spoil, {"scales", "65", "H = 64"});
}

TEST_P(BadDispatch, ScalesMustHaveARowPerToken) {
  const auto spoil = [](const Call& call, DispatchInput& input, DispatchOptions&) {
    input.scales = ConstTensorView(some_memory(call, 41 * 4), DType::kFp32, {41, 1});
  };
  refuse(spoil, {"scales", "[41, 1]", "40"});
}

TEST_P(BadDispatch, CapacityAndAlignmentMustBePossible) {
  refuse([](const Call&, DispatchInput&, DispatchOptions& options) { options.capacity = -1; },
         {"capacity", "-1"});
  refuse([](const Call&, DispatchInput&, DispatchOptions& options) { options.alignment = 0; },
         {"alignment", "0"});
  refuse([](const Call&, DispatchInput&, DispatchOptions& options) { options.alignment = -8; },
         {"alignment", "-8"});
}

TEST_P(BadDispatch, TheMapMustFitTheGroup) {
  const auto more_ranks = [](const Call&, DispatchInput&, DispatchOptions& options) {
    options.experts = ExpertMap::balanced(6, 4).value();
  };
  refuse(more_ranks, {"experts", "4 ranks", "3 ranks"});
  const auto more_experts = [](const Call&, DispatchInput&, DispatchOptions& options) {
    options.experts = ExpertMap::balanced(7, 3).value();
  };
  refuse(more_experts, {"experts", "7 experts", "max_experts = 6"});
}

TEST_P(BadDispatch, BudgetMustBeInItsRange) {
  refuse([](const Call&, DispatchInput&, DispatchOptions& options) { options.num_sms = 0; },
         {"num_sms", "0"});
  refuse([](const Call&, DispatchInput&,
            DispatchOptions& options) { options.num_sms = SmBudget::kMaxSms + 1; },
         {"num_sms", "1025"});
}

TEST_P(BadDispatch, StreamMustBeThatOfAHostGroup) {
  if (test_backend() == Backend::kCuda)
    GTEST_SKIP() << "the driver ends a process for such a stream";
  refuse([](const Call& call, DispatchInput&,
            DispatchOptions& options) { options.stream.handle = &call.scratch; },
         {"stream"});
}

TEST_P(BadDispatch, GivenOutputsMustHaveTheRightTypeAndShape) {
  const auto give_x = [](DType dtype, std::int64_t hidden) {
    return [=](const Call& call, DispatchInput&, DispatchOptions& options) {
      options.out.x = allocated(call, dtype, {100, hidden});
    };
  };
  refuse(give_x(DType::kFp16, 64), {"out.x", "fp16[100, 64]"});
  refuse(give_x(DType::kBf16, 56), {"out.x", "bf16[100, 56]", "bf16[100, 64]"});
}

TEST_P(BadDispatch, GivenOutputsMustHaveOneCapacity) {
  const auto differ = [](const Call& call, DispatchInput&, DispatchOptions& options) {
    options.out.x = allocated(call, DType::kBf16, {100, 64});
    options.out.topk_weights = options.layout == Layout::kFlat
                                   ? allocated(call, DType::kFp32, {99, 4})
                                   : allocated(call, DType::kFp32, {99});
  };
  refuse(differ, {"99", "100"});
  const auto contradict = [](const Call& call, DispatchInput&, DispatchOptions& options) {
    options.out.x = allocated(call, DType::kBf16, {100, 64});
    options.capacity = 101;
  };
  refuse(contradict, {"capacity", "101", "100"});
}

TEST_P(BadDispatch, GivenOutputsMustNotOverlap) {
  const auto spoil = [](const Call& call, DispatchInput&, DispatchOptions& options) {
    const Tensor block = allocated(call, DType::kUInt8, {100 * 128});
    options.out.x = Tensor(TensorView(block.view().data, DType::kBf16, {100, 64}), block.storage());
    const TensorView flat(block.view().data, DType::kFp32, {100, 4});
    const TensorView grouped(block.view().data, DType::kFp32, {100});
    options.out.topk_weights =
        Tensor(options.layout == Layout::kFlat ? flat : grouped, block.storage());
  };
  refuse(spoil, {"out.", "overlaps"});
}

TEST_P(BadDispatch, GivenOutputsMustBeContiguousAndInsideTheirBlock) {
  const auto strided = [](const Call& call, DispatchInput&, DispatchOptions& options) {
    const Tensor block = allocated(call, DType::kBf16, {100, 128});
    TensorView view(block.view().data, DType::kBf16, {100, 64});
    view.strides[0] = 128;
    options.out.x = Tensor(view, block.storage());
  };
  refuse(strided, {"out.x", "contiguous"});
  const auto outside = [](const Call& call, DispatchInput&, DispatchOptions& options) {
    const Tensor block = allocated(call, DType::kBf16, {2, 64});
    call.scratch.bytes.resize(100 * 128);
    options.out.x =
        Tensor(TensorView(call.scratch.bytes.data(), DType::kBf16, {100, 64}), block.storage());
  };
  refuse(outside, {"out.x"});
}

TEST_P(BadDispatch, GivenOutputsMustBeAligned) {
  const auto shifted = [](const Call& call, DispatchInput&, DispatchOptions& options) {
    const Tensor block = allocated(call, DType::kBf16, {101, 64});
    auto* const data = static_cast<std::byte*>(block.view().data) + 8;
    options.out.x = Tensor(TensorView(data, DType::kBf16, {100, 64}), block.storage());
  };
  refuse(shifted, {"out.x", "bf16[100, 64]", "not aligned to 16 bytes"});
}

TEST_P(BadDispatch, GivenOutputsMustBelongToTheGroup) {
  expect_refusal(refusal_problem(GetParam()),
                 [](const Call& call, bool is_spoiled) {
                   auto other = Group::create(call.context.bootstrap(), call.group.config());
                   if (!call.context.expect_ok(other.status(), "second group"))
                     return other.status();
                   const auto foreign = (*other)->allocate(DType::kBf16, {500, 64});
                   if (!call.context.expect_ok(foreign.status(), "allocate"))
                     return foreign.status();
                   const auto give = [&](const Call&, DispatchInput&, DispatchOptions& options) {
                     options.out.x = *foreign;
                   };
                   return spoiled_dispatch(give)(call, is_spoiled);
                 },
                 {"out.x", "group"});
}

class BadCached : public ::testing::Test {
 protected:
  static void refuse(const SpoilDispatch& spoil, const std::vector<std::string>& mentions) {
    for (const Layout layout : kLayouts)
      expect_refusal(refusal_problem(layout), spoiled_cached(spoil), mentions);
  }
};

TEST_F(BadCached, TopkIdxMustNotBeGiven) {
  refuse(
      [](const Call& call, DispatchInput& input, DispatchOptions&) { editable_idx(call, input); },
      {"topk_idx"});
}

TEST_F(BadCached, TokensMustBeThoseOfTheHandle) {
  const auto spoil = [](const Call&, DispatchInput& input, DispatchOptions&) {
    input.x.shape[0] = 39;
    input.topk_weights.shape[0] = 39;
  };
  refuse(spoil, {"x", "39", "40"});
}

TEST_F(BadCached, TheHandleMustNotBeNull) {
  const auto body = [](const Call& call, bool is_spoiled) {
    const RankInputs inputs(call.oracle.problem(), call.context.rank());
    DispatchInput input = inputs.views();
    input.topk_idx = {};
    return dispatch_cached(call.group, is_spoiled ? DispatchHandle() : call.dispatched.handle,
                           input)
        .status();
  };
  for (const Layout layout : kLayouts)
    expect_refusal(refusal_problem(layout), body, {"handle", "null"});
}

TEST_F(BadCached, GivenOutputsMustHaveTheHandlesCapacity) {
  const auto spoil = [](const Call& call, DispatchInput&, DispatchOptions& options) {
    options.out.x = allocated(call, DType::kBf16, {3, 64});
  };
  refuse(spoil, {"out", "3"});
}

}  // namespace
}  // namespace ep::test
