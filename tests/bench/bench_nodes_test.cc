// SPDX-License-Identifier: Apache-2.0
// Runs of ep-bench over several nodes: no wrong row, the same bits on every network, and on the
// network what the model predicts.
#include "tests/bench/bench_process.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

namespace ep::test {
namespace {

constexpr const char* kSmall = " --tokens 30 --hidden 128 --iters 3 --warmup 1 --json - ";
/// Networks over which the same bits must come.
const std::vector<std::string> kNets = {" --net ordered", " --net unordered",
                                        " --net chaos --chaos-seed 7"};

BenchOutcome moe(const std::string& options) {
  return run_bench(words_of(std::string("moe") + kSmall + options));
}

struct Hashes {
  std::string received;
  std::string output;

  bool operator==(const Hashes&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Hashes& hashes) {
    return out << hashes.received << " " << hashes.output;
  }
};

/// Of a run without a wrong row.
Hashes hashes_of(const std::string& options) {
  const BenchOutcome outcome = moe(options);
  EXPECT_EQ(outcome.exit_code, 0) << options << "\n" << outcome.err;
  const auto lines = outcome.lines();
  if (lines.size() != 3) return {options, options};
  for (const auto& line : lines) {
    EXPECT_EQ(line["rows_wrong"], 0) << options;
    EXPECT_GT(line["rows_checked"], 0) << options;
  }
  return {lines[0]["output_hash"].get<std::string>(), lines[2]["output_hash"].get<std::string>()};
}

class BenchNodes : public testing::TestWithParam<const char*> {};

TEST_P(BenchNodes, HaveTheSameBitsOnEveryNetwork) {
  const Hashes first = hashes_of(GetParam() + kNets.front());
  for (const std::string& net : kNets) EXPECT_EQ(hashes_of(GetParam() + net), first) << net;
}

INSTANTIATE_TEST_SUITE_P(
    Splits,
    BenchNodes,
    testing::Values("--launch threads --ranks 4 --lsa-size 2",
                    "--launch threads --ranks 5 --lsa-size 2 --layout expert_major --align 4",
                    "--launch threads --ranks 3 --lsa-size 1 --dtype fp8 --capacity auto",
                    "--launch threads --ranks 4 --lsa-size 3 --capacity 35 --routing cached"));
#ifdef EP_TEST_WITH_OFI
INSTANTIATE_TEST_SUITE_P(Processes, BenchNodes, testing::Values("--ranks 4 --lsa-size 2"));
#endif

/// Sums that are exact do not depend on where they are rounded.
TEST(BenchNodesHash, OfAnExactLayerIsTheSameForEverySplit) {
  const std::string exact = "--launch threads --ranks 4 --exact --lsa-size ";
  const Hashes whole = hashes_of(exact + "4");
  for (const std::string split :
       {"1", "2", "3", "2 --net unordered", "2 --net chaos --chaos-seed 7"}) {
    EXPECT_EQ(hashes_of(exact + split), whole) << split;
  }
}

/// One rank per node rounds as a single node does; rows arrive the same however ranks are split.
TEST(BenchNodesHash, OfOneRankPerNodeIsThatOfOneNode) {
  const std::string common = "--launch threads --ranks 4 --lsa-size ";
  const Hashes whole = hashes_of(common + "4");
  EXPECT_EQ(hashes_of(common + "1"), whole);
  EXPECT_EQ(hashes_of(common + "2").received, whole.received);
}

TEST(BenchNodesReport, NamesNodesAndNetwork) {
  const BenchOutcome outcome =
      moe("--launch threads --ranks 4 --lsa-size 2 --net chaos --chaos-seed 7 --provider local");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("nodes: 2 of at most 2 ranks, network chaos (seed 7), provider "),
            std::string::npos)
      << outcome.err;
  for (const auto& line : outcome.lines()) {
    EXPECT_EQ(line["lsa_size"], 2);
    EXPECT_EQ(line["net"], "chaos");
    EXPECT_EQ(line["chaos_seed"], 7);
    EXPECT_NE(line["provider"].get<std::string>().find("local"), std::string::npos);
    EXPECT_GT(line["net_bytes"], 0);
  }
}

/// Bytes, puts and signals, rank by rank.
TEST(BenchNodesTraffic, IsExactlyWhatTheRoutingPredicts) {
  for (const char* options : {"--lsa-size 2", "--lsa-size 3 --net unordered --dtype fp8",
                              "--lsa-size 2 --layout expert_major", "--lsa-size 2 --capacity auto",
                              "--lsa-size 2 --routing cached"}) {
    const BenchOutcome outcome = moe(std::string("--launch threads --ranks 5 ") + options);
    ASSERT_EQ(outcome.exit_code, 0) << options << "\n" << outcome.err;
    const auto lines = outcome.lines();
    ASSERT_EQ(lines.size(), 3u);
    std::size_t num_equal = 0;
    for (std::size_t at = outcome.err.find("; equal on every rank"); at != std::string::npos;
         at = outcome.err.find("; equal on every rank", at + 1)) {
      ++num_equal;
    }
    EXPECT_EQ(num_equal, 2u) << options << ": dispatch and combine\n" << outcome.err;
    for (const std::size_t op : {0u, 1u}) {
      EXPECT_EQ(lines[op]["net_bytes_per_token"], lines[op]["predicted_net_bytes_per_token"]);
    }
  }
}

TEST(BenchNodesSoak, ChecksEveryRowOfEveryRound) {
  for (const std::string& net : kNets) {
    const BenchOutcome outcome = run_bench(words_of(
        "soak --launch threads --ranks 4 --lsa-size 2 --iters 40 --tokens 16 --hidden 64 --json -" +
        net));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    ASSERT_EQ(outcome.lines().size(), 1u);
    EXPECT_EQ(outcome.lines().front()["rows_wrong"], 0);
    EXPECT_GE(outcome.lines().front()["rows_checked"], 2 * 40 * 16 * 4);
    EXPECT_EQ(outcome.lines().front()["lsa_size"], 2);
  }
}

}  // namespace
}  // namespace ep::test
