// SPDX-License-Identifier: Apache-2.0
// S12, S20: two processes with a GPU each receive and add up the same bits for every budget, which
// are those of the host executor.
#include "tests/support/moe_ops.h"
#include "tests/support/routing_cases.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ep::test {
namespace {

constexpr int kNumRanks = 2;
constexpr std::array kBudgets = {1, 2, 3, 5, 7, 12, 13, 16, 24, 31, 64, 132};
/// Two ranks of one GPU fit on it together.
constexpr int kMostOfSharedGpu = 64;

Problem sample_of(Layout layout) {
  Random random(17);
  RoutingShape shape{.num_ranks = kNumRanks, .num_tokens = {701, 388}, .topk = 6};
  shape.expert_to_rank = balanced_map(37, kNumRanks);
  shape.masked_percent = 5;
  shape.repeated_percent = 5;
  Problem problem{.routing = random_routing(shape, random), .layout = layout};
  problem.alignment = layout == Layout::kFlat ? 1 : 16;
  problem.hidden = 1280;
  return problem;
}

std::string hash_text(const std::vector<std::byte>& bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const std::byte byte : bytes)
    hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3u;
  return std::to_string(hash) + " of " + std::to_string(bytes.size()) + " bytes";
}

/// Received rows, then sums; empty, with a finding, unless the oracle agrees.
std::vector<std::byte> bytes_of_step(RankContext& context,
                                     Group& group,
                                     const Oracle& oracle,
                                     std::optional<int> num_sms) {
  const auto output = checked_dispatch(context, group, oracle, {.num_sms = num_sms});
  if (!output) return {};
  const bool weighted = oracle.problem().layout == Layout::kExpertMajor;
  const auto received = bytes_of(output->x.view());
  std::vector<std::byte> bytes(received.begin(), received.end());
  const auto sums = checked_combine(context, group, oracle, output->handle,
                                    {.hidden = oracle.problem().hidden,
                                     .weighted = weighted,
                                     .has_bias = true,
                                     .num_sms = num_sms});
  if (!sums) return {};
  bytes.insert(bytes.end(), sums->begin(), sums->end());
  return bytes;
}

std::vector<RankReport> run_on_host(const Oracle& oracle) {
  return check_group({.num_ranks = kNumRanks}, config_for(oracle.problem()),
                     [&](RankContext& context, Group& group) {
                       context.bytes = bytes_of_step(context, group, oracle, std::nullopt);
                     });
}

class GpuBudgets : public testing::TestWithParam<Layout> {};

TEST_P(GpuBudgets, EveryOneGivesTheBitsOfTheHostExecutor) {
  const int num_gpus = Device::count();
  if (num_gpus == 0) GTEST_SKIP() << "needs a GPU";
  const Oracle oracle(sample_of(GetParam()));
  const auto expected = run_on_host(oracle);
  RanksOptions options{.num_ranks = kNumRanks, .launch = Launch::kForks};
  options.while_running = [](std::span<const pid_t>) {};
  const auto reports = run_ranks(options, [&](RankContext& context) {
    // Of this process, whose groups are on a GPU from now on.
    setenv("EP_TEST_BACKEND", "cuda", 1);
    const auto group = Group::create(context.bootstrap(), config_for(oracle.problem()));
    if (!context.expect_ok(group.status(), "Group::create")) return;
    const auto& host = expected[static_cast<std::size_t>(context.rank())].bytes;
    for (const int budget : kBudgets) {
      if (num_gpus < kNumRanks && budget > kMostOfSharedGpu) continue;
      const auto bytes = bytes_of_step(context, **group, oracle, budget);
      context.expect(bytes == host, std::to_string(budget) + " SMs give " + hash_text(bytes) +
                                        ", the host " + hash_text(host));
    }
  });
  expect_fine(reports);
  for (std::size_t rank = 0; rank < expected.size(); ++rank)
    RecordProperty("hash_of_rank_" + std::to_string(rank), hash_text(expected[rank].bytes));
}

INSTANTIATE_TEST_SUITE_P(Layouts,
                         GpuBudgets,
                         testing::Values(Layout::kFlat, Layout::kExpertMajor),
                         [](const auto& layout) {
                           return layout.param == Layout::kFlat ? "Flat" : "ExpertMajor";
                         });

}  // namespace
}  // namespace ep::test
