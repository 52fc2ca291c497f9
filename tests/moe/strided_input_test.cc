// SPDX-License-Identifier: Apache-2.0
// S16: inputs with any strides, freed or overwritten as soon as the call returned.
#include "tests/moe/sample_problems.h"
#include "tests/support/moe_ops.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace ep::test {
namespace {

void check_strides(const DispatchSpec& spec) {
  for (const Layout layout : kLayouts) {
    for (const DType idx_dtype : {DType::kInt32, DType::kInt64}) {
      Problem problem = sample_problem(layout);
      problem.idx_dtype = idx_dtype;
      check_problem(problem, [&spec, oracle = Oracle(problem)](RankContext& context, Group& group) {
        checked_dispatch(context, group, oracle, spec);
      });
    }
  }
}

TEST(StridedInput, RowsMayBeASliceOfWiderRows) {
  check_strides({.strides = {.row_gap_bytes = 112}});
}

TEST(StridedInput, RowsMayStartAtAnOffset) {
  check_strides({.strides = {.row_gap_bytes = 16, .first_row_bytes = 4112}});
}

TEST(StridedInput, RowsMayBeOneRowExpanded) {
  check_strides({.strides = {.is_x_expanded = true}, .check = {.is_x_expanded = true}});
}

TEST(StridedInput, IndicesAndWeightsMayBeTransposed) {
  check_strides({.strides = {.is_topk_transposed = true}});
  check_strides({.strides = {.is_topk_transposed = true, .topk_gap_elems = 3}});
}

TEST(StridedInput, IndicesAndWeightsMayBeASlice) {
  check_strides({.strides = {.topk_gap_elems = 5}});
}

TEST(StridedInput, InputsMayBeOverwrittenRightAfterTheCall) {
  check_strides({.strides = {.row_gap_bytes = 16}, .overwrites_inputs = true});
}

TEST(StridedInput, CombineTakesTransposedWeightsAndExpandedBias) {
  const Problem problem = sample_problem(Layout::kExpertMajor);
  check_problem(problem, [oracle = Oracle(problem)](RankContext& context, Group& group) {
    const auto output = checked_dispatch(context, group, oracle);
    if (!output) return;
    const RankInputs inputs(oracle.problem(), context.rank(), {.is_topk_transposed = true});
    const ExpertRows rows(group, oracle, {});
    const std::vector<std::byte> zero_bias(128);
    CombineInput input;
    input.rows = rows.view();
    input.topk_weights = inputs.topk_weights();
    input.bias = ConstTensorView(zero_bias.data(), DType::kBf16, {output->handle.num_tokens(), 64});
    input.bias.strides[0] = 0;
    const auto combined = combine(group, output->handle, input);
    if (!context.expect_ok(combined.status(), "combine")) return;
    CombineProblem expected = combine_problem({.weighted = true});
    expected.bias = [](int, std::int64_t, std::span<std::byte> bytes) {
      std::fill(bytes.begin(), bytes.end(), std::byte{0});
    };
    context.expect_nothing(check_combine(oracle, expected, context.rank(), combined->out),
                           "combine");
  });
}

TEST(StridedInput, CombineBackwardTakesAnExpandedGradient) {
  const Problem problem = sample_problem(Layout::kExpertMajor);
  check_problem(problem, [oracle = Oracle(problem)](RankContext& context, Group& group) {
    const auto output = checked_dispatch(context, group, oracle);
    if (!output) return;
    // Sum losses have the same gradient everywhere: one element in torch, one row here.
    std::vector<std::byte> ones(128, std::byte{0x3F});
    for (std::size_t at = 0; at < ones.size(); at += 2) ones[at] = std::byte{0x80};
    CombineGradInput input;
    input.grad_out = ConstTensorView(ones.data(), DType::kBf16, {output->handle.num_tokens(), 64});
    input.grad_out.strides[0] = 0;
    const auto grad = combine_backward(group, output->handle, input);
    if (!context.expect_ok(grad.status(), "combine_backward")) return;
    const auto bytes = bytes_of(grad->grad_rows.view());
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      if (!context.expect(bytes[at] == ones[at % ones.size()], "a gradient is not 1")) return;
    }
  });
}

}  // namespace
}  // namespace ep::test
