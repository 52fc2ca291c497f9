// SPDX-License-Identifier: Apache-2.0
// Tests that the checks of an operation's results notice every kind of damage.
#include "tests/support/moe_checks.h"

#include "tests/support/moe_ops.h"
#include "tests/support/routing_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

namespace ep::test {
namespace {

Problem small_problem(Layout layout) {
  Problem problem{.routing = uniform_routing(1, 20, 2, 4, 1), .layout = layout};
  problem.alignment = layout == Layout::kFlat ? 1 : 8;
  problem.num_scales = 3;
  return problem;
}

/// What check_dispatch says after `damage` to a right output.
std::string finding_after(Layout layout, const std::function<void(DispatchOutput&)>& damage) {
  const Problem problem = small_problem(layout);
  std::string finding;
  check_problem(problem, [&, oracle = Oracle(problem)](RankContext& context, Group& group) {
    auto output = checked_dispatch(context, group, oracle);
    if (!output) return;
    damage(*output);
    finding = check_dispatch(oracle, 0, *output);
  });
  return finding;
}

void flip(const Tensor& tensor, std::int64_t byte) {
  bytes_of(tensor.view())[static_cast<std::size_t>(byte)] ^= std::byte{1};
}

TEST(DispatchCheck, FindsNothingInARightOutput) {
  EXPECT_EQ(finding_after(Layout::kFlat, [](DispatchOutput&) {}), "");
  EXPECT_EQ(finding_after(Layout::kExpertMajor, [](DispatchOutput&) {}), "");
}

TEST(DispatchCheck, FindsOneWrongBitInAnyTensor) {
  for (const Layout layout : {Layout::kFlat, Layout::kExpertMajor}) {
    const std::vector<Tensor DispatchOutput::*> tensors{
        &DispatchOutput::x, &DispatchOutput::scales, &DispatchOutput::topk_weights,
        &DispatchOutput::expert_counts, &DispatchOutput::sizes};
    for (Tensor DispatchOutput::*tensor : tensors) {
      EXPECT_NE(finding_after(layout, [&](DispatchOutput& output) { flip(output.*tensor, 8); }),
                "");
    }
  }
}

TEST(DispatchCheck, FindsAWrongIndexAndAWrongOffset) {
  EXPECT_NE(finding_after(Layout::kFlat, [](DispatchOutput& output) { flip(output.topk_idx, 16); }),
            "");
  EXPECT_NE(finding_after(Layout::kExpertMajor,
                          [](DispatchOutput& output) { flip(output.expert_offsets, 8); }),
            "");
}

TEST(DispatchCheck, FindsTwoRowsThatChangedPlaces) {
  const std::string finding = finding_after(Layout::kFlat, [](DispatchOutput& output) {
    const auto bytes = bytes_of(output.x.view());
    std::swap_ranges(bytes.begin() + 128, bytes.begin() + 256, bytes.begin() + 256);
  });
  EXPECT_EQ(
      finding,
      "row 1: expected rank 0, token 1, block 0, call 1, got rank 0, token 2, block 0, call 1");
}

TEST(DispatchCheck, FindsDirtyPadding) {
  const Oracle oracle(small_problem(Layout::kExpertMajor));
  std::int64_t padding_row = 0;
  while (!oracle.rank(0).rows[static_cast<std::size_t>(padding_row)].is_padding) ++padding_row;
  const std::string finding = finding_after(Layout::kExpertMajor, [&](DispatchOutput& output) {
    flip(output.x, padding_row * 128 + 127);
  });
  EXPECT_EQ(finding, "row " + std::to_string(padding_row) + ": x is not zero");
}

TEST(CombineCheck, FindsOneWrongBit) {
  const Problem problem = small_problem(Layout::kExpertMajor);
  check_problem(problem, [oracle = Oracle(problem)](RankContext& context, Group& group) {
    const auto output = checked_dispatch(context, group, oracle);
    if (!output) return;
    const CombineSpec spec{.weighted = true};
    auto rows = checked_combine(context, group, oracle, output->handle, spec);
    if (!rows) return;
    const TensorView view(rows->data(), DType::kBf16, {20, 64});
    EXPECT_EQ(check_combine(oracle, combine_problem(spec), 0, view), "");
    (*rows)[19 * 128 + 126] ^= std::byte{1};
    const std::string finding = check_combine(oracle, combine_problem(spec), 0, view);
    EXPECT_EQ(finding.rfind("token 19: element 63 = ", 0), 0U) << finding;
  });
}

}  // namespace
}  // namespace ep::test
