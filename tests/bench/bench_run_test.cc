// SPDX-License-Identifier: Apache-2.0
// Whole runs of ep-bench: rows are right for every shape, and hashes depend on nothing but the
// data.
#include "tests/bench/bench_process.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

namespace ep::test {
namespace {

/// "COMMAND OPTIONS", small and quick where the options do not say otherwise.
std::vector<std::string> small(const std::string& command) {
  std::vector<std::string> args = words_of(command);
  for (const auto& [option, value] : {std::pair("--tokens", "60"), std::pair("--hidden", "128"),
                                      std::pair("--iters", "3"), std::pair("--warmup", "1")}) {
    if (std::find(args.begin(), args.end(), option) != args.end()) continue;
    args.insert(args.end(), {option, value});
  }
  return args;
}

BenchOutcome moe(const std::string& options) { return run_bench(small("moe " + options)); }

std::string hash_of(const BenchOutcome& outcome, std::size_t line) {
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto lines = outcome.lines();
  if (line >= lines.size()) return "no line " + std::to_string(line);
  return lines[line]["output_hash"].get<std::string>();
}

class BenchMoe : public testing::TestWithParam<const char*> {};

TEST_P(BenchMoe, HasNoWrongRow) {
  const BenchOutcome outcome = moe(GetParam());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err << outcome.out;
  EXPECT_TRUE(outcome.last_line().ends_with(" rows checked, 0 wrong")) << outcome.out;
  EXPECT_FALSE(outcome.last_line().starts_with("0 ")) << outcome.out;
}

INSTANTIATE_TEST_SUITE_P(Ranks,
                         BenchMoe,
                         testing::Values("--ranks 1",
                                         "--ranks 2",
                                         "--ranks 3",
                                         "--ranks 5",
                                         "--ranks 7",
                                         "--ranks 8",
                                         "--ranks 3 --launch threads",
                                         "--ranks 8 --launch threads --layout expert_major"));

INSTANTIATE_TEST_SUITE_P(Shapes,
                         BenchMoe,
                         testing::Values("--ranks 3 --experts 7",
                                         "--ranks 2 --experts 129",
                                         "--ranks 3 --experts 7 --layout expert_major --align 4",
                                         "--ranks 2 --experts 129 --layout expert_major",
                                         "--ranks 5 --experts 4",
                                         "--experts 1 --topk 1",
                                         "--topk 32 --exact",
                                         "--hidden 8 --tokens 1",
                                         "--tokens 700 --hidden 16"));

INSTANTIATE_TEST_SUITE_P(Types,
                         BenchMoe,
                         testing::Values("--dtype fp16",
                                         "--dtype fp32",
                                         "--dtype fp8",
                                         "--dtype int8 --hidden 400",
                                         "--dtype fp8 --layout expert_major --hidden 144",
                                         "--dtype bf16 --exact",
                                         "--dtype fp16 --exact --layout expert_major",
                                         "--dtype int8 --exact"));

INSTANTIATE_TEST_SUITE_P(Ways,
                         BenchMoe,
                         testing::Values("--routing cached",
                                         "--routing cached --layout expert_major",
                                         "--placement outside",
                                         "--placement outside --layout expert_major",
                                         "--capacity auto",
                                         "--capacity auto --layout expert_major --align 8",
                                         "--capacity 50",
                                         "--capacity 70 --layout expert_major --align 4",
                                         "--sms 3 --layout expert_major"));

TEST(BenchHash, IsTheSameForEveryBudget) {
  for (const char* layout : {"flat", "expert_major"}) {
    const std::string options = std::string("--ranks 3 --json - --layout ") + layout + " --sms ";
    const BenchOutcome first = moe(options + "1");
    for (const char* sms : {"2", "3", "4"}) {
      const BenchOutcome other = moe(options + sms);
      EXPECT_EQ(hash_of(other, 0), hash_of(first, 0)) << layout << " " << sms;
      EXPECT_EQ(hash_of(other, 2), hash_of(first, 2)) << layout << " " << sms;
    }
  }
}

TEST(BenchHash, IsTheSameForForkThreadsAndEveryRun) {
  const BenchOutcome forked = moe("--json - --launch fork");
  const BenchOutcome threads = moe("--json - --launch threads --iters 5 --placement outside");
  const BenchOutcome cached = moe("--json - --routing cached --timeout 20");
  for (std::size_t line : {0u, 1u, 2u}) {
    EXPECT_EQ(hash_of(threads, line), hash_of(forked, line));
    EXPECT_EQ(hash_of(cached, line), hash_of(forked, line));
  }
  EXPECT_NE(hash_of(forked, 0), hash_of(forked, 1));
}

TEST(BenchHash, DependsOnTheSeed) {
  EXPECT_NE(hash_of(moe("--json - --seed 2"), 2), hash_of(moe("--json - --seed 3"), 2));
}

/// Sums that are exact do not depend on where they are rounded: both layouts, any ranks.
TEST(BenchHash, OfAnExactLayerIsTheSameForBothLayouts) {
  EXPECT_EQ(hash_of(moe("--json - --exact"), 1),
            hash_of(moe("--json - --exact --layout expert_major"), 1));
}

TEST(BenchJson, LinesNameTheRun) {
  const BenchOutcome outcome = moe("--json - --ranks 3 --dtype fp8 --sms 2 --capacity 200");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto lines = outcome.lines();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["op"], "dispatch");
  EXPECT_EQ(lines[0]["dtype"], "fp8");
  EXPECT_EQ(lines[1]["op"], "combine");
  EXPECT_EQ(lines[1]["dtype"], "bf16");
  EXPECT_EQ(lines[2]["op"], "moe");
  EXPECT_TRUE(lines[2]["logical_gbps"].is_null());
  for (const auto& line : lines) {
    EXPECT_EQ(line["ranks"], 3);
    EXPECT_EQ(line["lsa_size"], 3);
    EXPECT_EQ(line["sms"], 2);
    EXPECT_EQ(line["capacity"], 200);
    EXPECT_EQ(line["rows_wrong"], 0);
    EXPECT_GT(line["rows_checked"], 0);
    EXPECT_GT(line["median_us"], 0);
    EXPECT_LE(line["p10_us"], line["p90_us"]);
    EXPECT_FALSE(line["commit"].get<std::string>().empty());
  }
  EXPECT_GT(lines[0]["fraction_of_memcpy"], 0);
  EXPECT_NE(outcome.err.find("rows checked, 0 wrong"), std::string::npos)
      << "the report moves aside";
}

TEST(BenchJson, DispatchAndCombineHaveALineEach) {
  for (const char* command : {"dispatch", "combine"}) {
    const BenchOutcome outcome = run_bench(small(command + std::string(" --json -")));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    ASSERT_EQ(outcome.lines().size(), 1u);
    EXPECT_EQ(outcome.lines()[0]["op"], command);
    EXPECT_GT(outcome.lines()[0]["rows_checked"], 0);
  }
}

/// The swept operation and its data are those of a run of its own.
TEST(BenchSweep, HasTheHashesOfSingleRuns) {
  for (const std::string op : {"dispatch", "combine"}) {
    const BenchOutcome sweep =
        run_bench(small("sweep --op " + op + " --sms 1,2,3 --tokens 30,60 --json -"));
    ASSERT_EQ(sweep.exit_code, 0) << sweep.err;
    const auto lines = sweep.lines();
    ASSERT_EQ(lines.size(), 6u);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      EXPECT_EQ(lines[i]["op"], op);
      EXPECT_EQ(lines[i]["tokens"], i < 3 ? 30 : 60);
      EXPECT_EQ(lines[i]["sms"], i % 3 + 1);
      EXPECT_EQ(lines[i]["rows_wrong"], 0);
      EXPECT_GT(lines[i]["rows_checked"], 0);
    }
    for (const auto& [line, tokens] : {std::pair(0, "30"), std::pair(5, "60")}) {
      const std::string single = op + " --json - --tokens " + tokens;
      EXPECT_EQ(lines[static_cast<std::size_t>(line)]["output_hash"],
                hash_of(run_bench(small(single)), 0));
    }
  }
}

TEST(BenchMoeTokens, NoTokensAreRightToo) {
  const BenchOutcome outcome = moe("--tokens 0");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.last_line(), "0 rows checked, 0 wrong");
}

/// T differs per rank and step, a rank without tokens, -1, a repeat, a token without experts.
TEST(BenchTrace, ReplaysSeveralStepsOfBothFormats) {
  const auto folder = std::filesystem::temp_directory_path();
  const std::string csv = folder / ("ep_bench_run_" + std::to_string(getpid()) + ".csv");
  std::ofstream(csv) << "# ep-trace experts=9 ranks=3\nstep,rank,token,k,expert,weight\n"
                        "0,0,0,0,0,0.5\n0,0,0,1,8,0.25\n0,0,1,0,-1,0\n0,2,0,0,4,1\n0,2,0,1,4,2\n"
                        "1,1,0,0,3,0.75\n1,1,1,1,2,0.125\n";
  const std::string ept = csv + ".ept";
  const std::string common = " --hidden 64 --iters 4 --json - --trace ";
  const BenchOutcome recorded = run_bench(words_of("moe --record " + ept + common + csv));
  const BenchOutcome replayed = run_bench(words_of("moe" + common + ept));
  const BenchOutcome grouped = run_bench(words_of("moe --layout expert_major" + common + ept));
  std::filesystem::remove(csv);
  std::filesystem::remove(ept);
  EXPECT_EQ(hash_of(recorded, 0), hash_of(replayed, 0));
  EXPECT_EQ(hash_of(recorded, 2), hash_of(replayed, 2));
  EXPECT_EQ(grouped.exit_code, 0) << grouped.err;
  ASSERT_EQ(recorded.lines().size(), 3u);
  EXPECT_EQ(recorded.lines()[0]["ranks"], 3);
  EXPECT_EQ(recorded.lines()[0]["experts"], 9);
  EXPECT_EQ(recorded.lines()[0]["tokens"], 2);
}

TEST(BenchTrace, ARecordedTextReplaysItsRouting) {
  const auto folder = std::filesystem::temp_directory_path();
  const std::string ept = folder / ("ep_bench_text_" + std::to_string(getpid()) + ".ept");
  const BenchOutcome text = moe("--json - --record " + ept);
  const BenchOutcome trace =
      run_bench(words_of("moe --hidden 128 --iters 3 --json - --trace " + ept));
  std::filesystem::remove(ept);
  ASSERT_EQ(text.exit_code, 0) << text.err;
  ASSERT_EQ(trace.exit_code, 0) << trace.err;
  EXPECT_EQ(trace.lines()[2]["rows_wrong"], 0);
}

/// A launcher's variables make every process one rank.
TEST(BenchLauncher, RanksOfALauncherAgreeWithForkedOnes) {
  const std::vector<std::string> args = small("moe --json -");
  const auto rank_env = [](const char* rank) {
    return Environment{{"RANK", rank},
                       {"WORLD_SIZE", "2"},
                       {"EP_MASTER_ADDR", "127.0.0.1"},
                       {"EP_MASTER_PORT", std::to_string(20'000 + getpid() % 20'000)}};
  };
  BenchProcess second(args, rank_env("1"));
  const BenchOutcome first = run_bench(args, rank_env("0"));
  const BenchOutcome other = second.wait();
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_TRUE(other.out.empty()) << "only rank 0 reports";
  EXPECT_EQ(hash_of(first, 2), hash_of(moe("--json -"), 2));
}

TEST(BenchSoak, ChecksEveryRowOfEveryRound) {
  for (const char* options : {"--ranks 2", "--ranks 3 --launch threads --layout expert_major"}) {
    const BenchOutcome outcome = run_bench(
        words_of(std::string("soak --iters 40 --tokens 16 --hidden 64 --json - ") + options));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err << outcome.out;
    ASSERT_EQ(outcome.lines().size(), 1u) << outcome.out;
    const auto line = outcome.lines().front();
    EXPECT_EQ(line["op"], "soak");
    EXPECT_EQ(line["rows_wrong"], 0);
    // Output rows of all rounds, and at least as many received ones.
    EXPECT_GE(line["rows_checked"].get<int>(), 2 * 40 * 16 * line["ranks"].get<int>());
    EXPECT_NE(outcome.err.find("40 rounds of dispatch and combine"), std::string::npos);
  }
}

}  // namespace
}  // namespace ep::test
