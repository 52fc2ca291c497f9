// SPDX-License-Identifier: Apache-2.0
// S11: receive tensors beyond 2^31 and 2^32 bytes, two ranks, everything to one of them.
#include "tests/support/moe_ops.h"
#include "tests/support/number_formats.h"
#include "tests/support/payload.h"
#include "tests/support/routing_cases.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

namespace ep::test {
namespace {

constexpr std::int64_t kHidden = 7168;
constexpr std::int64_t kRowBytes = kHidden * 2;
constexpr std::int64_t kBlocksPerRow = kRowBytes / kBlockBytes;
constexpr int kNumRanks = 2;

/// MemAvailable of /proc/meminfo, in bytes.
std::int64_t available_bytes() {
  std::ifstream info("/proc/meminfo");
  std::string key;
  std::int64_t kibibytes = 0;
  std::string unit;
  while (info >> key >> kibibytes >> unit) {
    if (key == "MemAvailable:") return kibibytes * 1024;
  }
  return 0;
}

/// Why a test that touches so many bytes cannot run here; empty if it can.
std::string missing_for(std::int64_t bytes) {
  if (kSanitizerSlowdown > 1)
    return "needs a build without a sanitizer, whose shadow is larger still";
  const std::int64_t needed = bytes + bytes / 8;
  if (available_bytes() >= needed) return "";
  return "needs " + std::to_string(needed) + " bytes of memory";
}

/// Row t is the blocks t, t + 1, ... of one coded sequence: rows overlap, so that the inputs need
/// almost no memory.
std::vector<std::byte> overlapping_rows(int rank, std::int64_t num_tokens) {
  std::vector<std::byte> blocks(
      static_cast<std::size_t>((num_tokens + kBlocksPerRow) * kBlockBytes));
  fill_row(blocks, {.src_rank = rank});
  return blocks;
}

ConstTensorView overlapping_view(const std::vector<std::byte>& blocks, std::int64_t num_tokens) {
  ConstTensorView view(blocks.data(), DType::kBf16, {num_tokens, kHidden});
  view.strides[0] = kBlockBytes / 2;
  return view;
}

/// All of the sampled row's blocks.
std::string wrong_row(std::span<const std::byte> row,
                      const ExpectedRow& expected,
                      std::span<const std::byte> source) {
  const auto want =
      source.subspan(static_cast<std::size_t>(expected.token * kBlockBytes), row.size());
  if (std::equal(row.begin(), row.end(), want.begin())) return "";
  return "differs from token " + std::to_string(expected.token) + " of rank " +
         std::to_string(expected.src_rank);
}

std::string check_samples(const Oracle& oracle,
                          int rank,
                          const DispatchOutput& output,
                          const std::vector<std::vector<std::byte>>& sources) {
  constexpr std::int64_t kStep = 97;
  const ExpectedRank& expected = oracle.rank(rank);
  if (output.x.view().size(0) != expected.num_rows()) return "x is " + to_string(output.x.view());
  for (std::int64_t back = 0; back < expected.num_rows(); back += kStep) {
    const std::int64_t index = expected.num_rows() - 1 - back;
    const ExpectedRow& row = expected.rows[static_cast<std::size_t>(index)];
    const auto bytes =
        bytes_of(output.x.view()).subspan(static_cast<std::size_t>(index * kRowBytes), kRowBytes);
    const std::string wrong =
        wrong_row(bytes, row, sources[static_cast<std::size_t>(row.src_rank)]);
    if (!wrong.empty()) return "row " + std::to_string(index) + " " + wrong;
  }
  return "";
}

/// `row`, added `num_copies` times: what a token gets back when its experts change nothing.
std::vector<std::byte> repeated_sum(std::span<const std::byte> row, int num_copies) {
  std::vector<std::byte> sum(row.begin(), row.end());
  for (std::size_t at = 0; num_copies > 1 && at < sum.size(); at += 2) {
    const float value = widen(DType::kBf16, row.data() + at);
    float total = value;
    for (int copy = 1; copy < num_copies; ++copy) total = total + value;
    narrow(DType::kBf16, total, sum.data() + at);
  }
  return sum;
}

std::string check_returned(const TensorView& out,
                           const std::vector<std::byte>& blocks,
                           int num_copies) {
  constexpr std::int64_t kStep = 101;
  for (std::int64_t token = 0; token < out.size(0); token += kStep) {
    const auto row = bytes_of(out).subspan(static_cast<std::size_t>(token * kRowBytes), kRowBytes);
    const auto source =
        std::span(blocks).subspan(static_cast<std::size_t>(token * kBlockBytes), kRowBytes);
    const auto expected = repeated_sum(source, num_copies);
    if (!std::equal(row.begin(), row.end(), expected.begin())) {
      return "token " + std::to_string(token) + " did not come back";
    }
  }
  return "";
}

void check_large(const Problem& problem, int num_copies) {
  const Oracle oracle(problem);
  const std::int64_t num_tokens = problem.routing.ranks[0].num_tokens;
  const std::vector<std::vector<std::byte>> sources{overlapping_rows(0, num_tokens),
                                                    overlapping_rows(1, num_tokens)};
  const RanksOptions options{.num_ranks = kNumRanks, .limit = std::chrono::seconds(300)};
  check_group(options, config_for(problem), [&](RankContext& context, Group& group) {
    const RankInputs topk(problem, context.rank(), {.is_x_expanded = true});
    const auto& source = sources[static_cast<std::size_t>(context.rank())];
    DispatchInput input = topk.views();
    input.x = overlapping_view(source, num_tokens);
    DispatchOptions options_of_call;
    options_of_call.layout = problem.layout;
    options_of_call.experts = map_of(problem);
    context.step("dispatch");
    const auto output = dispatch(group, input, options_of_call);
    if (!context.expect_ok(output.status(), "dispatch")) return;
    context.expect_nothing(check_samples(oracle, context.rank(), *output, sources), "dispatch");
    CombineInput rows;
    rows.rows = output->x.view();
    context.step("combine");
    const auto combined = combine(group, output->handle, rows);
    if (!context.expect_ok(combined.status(), "combine")) return;
    context.expect_nothing(check_returned(combined->out, source, num_copies), "combine");
  });
}

TEST(Large, FlatRowsBeyondTwoToThe31Bytes) {
  constexpr std::int64_t kTokens = 131'072;
  constexpr std::int64_t kNeeded = 2 * kNumRanks * kTokens * kRowBytes;
  const std::string missing = missing_for(kNeeded);
  if (!missing.empty()) GTEST_SKIP() << missing;
  Problem problem{.routing = uniform_routing(kNumRanks, kTokens, 1, 2, 1)};
  send_all_to_rank(problem.routing, 0);
  problem.hidden = kHidden;
  problem.has_weights = false;
  check_large(problem, 1);
}

TEST(Large, ExpertMajorRowsBeyondTwoToThe32Bytes) {
  constexpr std::int64_t kTokens = 65'537;
  constexpr int kTopk = 4;
  constexpr std::int64_t kNeeded = (kTopk + 1) * kNumRanks * kTokens * kRowBytes;
  static_assert(kTopk * kNumRanks * kTokens * kRowBytes > (std::int64_t{1} << 32));
  const std::string missing = missing_for(kNeeded);
  if (!missing.empty()) GTEST_SKIP() << missing;
  Problem problem{.routing = uniform_routing(kNumRanks, kTokens, kTopk, 2 * kTopk, 1),
                  .layout = Layout::kExpertMajor};
  send_all_to_rank(problem.routing, 0);
  problem.hidden = kHidden;
  problem.has_weights = false;
  check_large(problem, kTopk);
}

}  // namespace
}  // namespace ep::test
