// SPDX-License-Identifier: Apache-2.0
// Exit codes of the program for usage that is right or wrong.
#include "tests/bench/bench_process.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

namespace ep::test {
namespace {

/// A file that is gone after the test.
class ScratchFile {
 public:
  ScratchFile(const std::string& ending, const std::string& content)
      : path_(std::filesystem::temp_directory_path() /
              ("ep_bench_test_" + std::to_string(getpid()) + ending)) {
    std::ofstream(path_, std::ios::binary) << content;
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ~ScratchFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class BenchUsage : public testing::TestWithParam<const char*> {};

TEST_P(BenchUsage, IsExitCode2WithAMessage) {
  const BenchOutcome outcome = run_bench(words_of(GetParam()));
  EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
  EXPECT_FALSE(outcome.err.empty());
  EXPECT_TRUE(outcome.out.empty()) << outcome.out;
}

INSTANTIATE_TEST_SUITE_P(
    Wrong,
    BenchUsage,
    testing::Values("",
                    "fly",
                    "moe --unknown",
                    "moe --sms 0",
                    "moe --ranks 0",
                    "moe --topk 9 --experts 8",
                    "moe --hidden 2047",
                    "dispatch --hidden 24 --dtype fp8",
                    "moe --text /nonexistent/text",
                    "moe --trace /nonexistent/trace",
                    "moe --json /nonexistent/folder/out.json --tokens 4 --hidden 64",
                    "dispatch --mode graph",
                    "p2p --sms 0",
                    "net --ranks 3",
                    "net --sizes 0",
                    "net --sizes 8,",
                    "moe --provider net",
                    "moe --sizes 8",
                    "moe --unordered",
                    "sweep --sms 1,,2",
                    "moe --sms 1,2",
                    "moe --plot /nonexistent/a.png",
                    "sweep --plot /nonexistent/a.png --trace /nonexistent/t",
                    "dispatch --ceilings /nonexistent/p2p",
                    "model --ranks 8,,16",
                    "model --plot /nonexistent/a.png --lsa-size 0",
                    "combine --lsa-size 0",
                    "info --lsa-size 5",
                    "net --lsa-size 3",
                    "moe --net ordered",
                    "moe --lsa-size 2 --net unordered",
                    "moe --lsa-size 1 --net tangled",
                    "moe --lsa-size 1 --chaos-seed 7",
                    "moe --lsa-size 1 --net unordered --chaos-seed 7",
                    "moe --lsa-size 1 --net chaos --chaos-seed -1",
                    "moe --lsa-size 1 --provider no_such_provider --tokens 4 --hidden 64",
                    "moe --lsa-size 1 --provider local --tokens 4 --hidden 64",
                    "net --net unordered",
                    "model --net chaos",
                    "model --provider tcp"));

TEST(BenchUsage, UnsupportedSaysSo) {
  EXPECT_NE(run_bench(words_of("moe --mode graph")).err.find("kUnsupported"), std::string::npos);
}

TEST(BenchUsage, OptionsOfANetworkNeedOne) {
  const BenchOutcome outcome = run_bench(words_of("moe --ranks 4 --net chaos --chaos-seed 7"));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("--net needs several nodes: --lsa-size below --ranks 4"),
            std::string::npos)
      << outcome.err;
}

TEST(BenchUsage, TheEnvironmentSplitsRanksIntoNodes) {
  const auto lsa_size_of = [](const std::string& args, const char* value) {
    const BenchOutcome info =
        run_bench(words_of("info --json - " + args), {{"EP_LSA_SIZE", value}});
    EXPECT_EQ(info.exit_code, 0) << info.err;
    return info.lines().at(0)["lsa_size"].get<int>();
  };
  EXPECT_EQ(lsa_size_of("--ranks 4", "2"), 2);
  EXPECT_EQ(lsa_size_of("--ranks 4 --lsa-size 3", "2"), 3) << "the option goes first";
  EXPECT_EQ(run_bench(words_of("info --ranks 4"), {{"EP_LSA_SIZE", "half"}}).exit_code, 2);
}

TEST(BenchUsage, CudaIsUnsupportedWhereTheBuildLacksIt) {
  if (run_bench({"info"}).out.find("backends: host, cuda") != std::string::npos) {
    GTEST_SKIP() << "this build has the CUDA backend";
  }
  for (const char* args : {"moe --backend cuda", "info --backend cuda", "p2p"}) {
    const BenchOutcome outcome = run_bench(words_of(args));
    EXPECT_EQ(outcome.exit_code, 2) << args;
    EXPECT_TRUE(outcome.out.empty()) << outcome.out;
    EXPECT_NE(outcome.err.find("kUnsupported"), std::string::npos) << outcome.err;
  }
}

TEST(BenchUsage, ABadTraceNamesLineAndValue) {
  const ScratchFile trace(".csv", "step,rank,token,k,expert,weight\n0,0,0,0,1,1\n0,0,1,0,many,1\n");
  const BenchOutcome outcome = run_bench({"moe", "--trace", trace.path()});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find(trace.path() + ", line 3: expert = 'many'"), std::string::npos)
      << outcome.err;
}

TEST(BenchUsage, ATraceOfOtherRanksIsRefused) {
  const ScratchFile trace(".csv", "step,rank,token,k,expert,weight\n0,0,0,0,1,1\n");
  const BenchOutcome outcome = run_bench({"moe", "--ranks", "2", "--trace", trace.path()});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("--ranks 2, but the trace has 1 ranks"), std::string::npos);
}

TEST(BenchUsage, ATextWithoutWordsIsRefused) {
  const ScratchFile text(".txt", "...\n");
  EXPECT_EQ(run_bench({"moe", "--text", text.path()}).exit_code, 2);
}

TEST(BenchUsage, AMalformedTimeoutInTheEnvironmentIsRefused) {
  const BenchOutcome outcome = run_bench({"info"}, {{"EP_TIMEOUT", "soon"}});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("soon"), std::string::npos);
}

TEST(BenchInfo, PredictsTheArenaOfARunExactly) {
  for (const char* shape :
       {"--tokens 40 --hidden 64", "--tokens 9 --hidden 640 --dtype fp8",
        "--ranks 3 --tokens 17 --hidden 32 --layout expert_major --align 8",
        "--tokens 40 --hidden 64 --capacity 30 --placement outside", "--tokens 0 --hidden 64",
        "--ranks 3 --lsa-size 2 --tokens 40 --hidden 64 --launch threads",
        "--ranks 3 --lsa-size 1 --tokens 9 --hidden 64 --launch threads"}) {
    const std::string options = std::string(shape) + " --iters 3 --json -";
    const BenchOutcome info = run_bench(words_of("info " + options));
    const BenchOutcome moe = run_bench(words_of("moe " + options));
    ASSERT_EQ(info.exit_code, 0) << info.err;
    ASSERT_EQ(moe.exit_code, 0) << moe.err;
    EXPECT_EQ(info.lines().at(0)["arena_bytes"], moe.lines().at(2)["arena_bytes"]) << shape;
    EXPECT_EQ(info.lines().at(0)["net_bytes"], moe.lines().at(2)["net_bytes"]) << shape;
    EXPECT_EQ(info.lines().at(0)["net_bytes"] > 0, options.find("--lsa-size") != std::string::npos);
    EXPECT_EQ(info.lines().at(0)["rows_wrong"], 0);
  }
}

TEST(BenchInfo, ShowsWhatNodesTake) {
  const BenchOutcome info = run_bench(
      words_of("info --ranks 8 --lsa-size 2 --net chaos --chaos-seed 7 --tokens 100000 --json -"));
  ASSERT_EQ(info.exit_code, 0) << info.err;
  EXPECT_NE(info.err.find("4 of at most 2 ranks, network chaos (seed 7)"), std::string::npos)
      << info.err;
  EXPECT_NE(info.err.find("  net  "), std::string::npos) << info.err;
  const auto line = info.lines().at(0);
  EXPECT_EQ(line["net"], "chaos");
  EXPECT_EQ(line["chaos_seed"], 7);
  EXPECT_TRUE(line["provider"].is_null()) << "nothing has run";
  EXPECT_LT(line["net_bytes"], line["arena_bytes"]);
}

TEST(BenchInfo, NamesMachineAndVersions) {
  const BenchOutcome info = run_bench({"info"});
  EXPECT_EQ(info.exit_code, 0);
  for (const char* part : {"commit", "cpu", "last cache", "control", "pool", "total"}) {
    EXPECT_NE(info.out.find(part), std::string::npos) << part;
  }
}

TEST(BenchModel, WritesALineForEveryPointAndOperation) {
  const std::string options =
      "model --ranks 4,8 --lsa-size 2 --tokens 40 --hidden 64 --topk 2 --experts 16 --json -";
  const BenchOutcome model = run_bench(words_of(options));
  ASSERT_EQ(model.exit_code, 0) << model.err;
  EXPECT_NE(model.err.find("net_messages"), std::string::npos) << "the table: " << model.err;
  const auto lines = model.lines();
  ASSERT_EQ(lines.size(), 2u * 2 * 2 * 2) << "ranks, routings, dedup, operations";
  for (const auto& line : lines) {
    EXPECT_EQ(line["op"], "model");
    EXPECT_GT(line["estimated_us"], 0);
    EXPECT_EQ(line["expected_net_rows_per_token"].is_null(), line["routing"] != "uniform");
  }
  EXPECT_EQ(lines.front()["what"], "dispatch");
  EXPECT_EQ(lines.back()["ranks"], 8);
  EXPECT_EQ(run_bench(words_of(options)).out, model.out) << "the same each time";
}

TEST(BenchModel, CountsARecordedRouting) {
  // Rank 0 has experts 0 and 1, rank 1 has 2 and 3.
  const ScratchFile trace(".csv",
                          "step,rank,token,k,expert,weight\n0,0,0,0,1,1\n0,0,0,1,2,1\n"
                          "0,1,0,0,3,1\n0,1,0,1,2,1\n");
  const BenchOutcome model = run_bench(
      {"model", "--trace", trace.path(), "--lsa-size", "1", "--hidden", "8", "--json", "-"});
  ASSERT_EQ(model.exit_code, 0) << model.err;
  ASSERT_EQ(model.lines().size(), 4u);
  EXPECT_EQ(model.lines().at(0)["routing"], "trace");
  EXPECT_EQ(model.lines().at(0)["net_rows_per_token"], 0.5) << "one of two tokens crosses";
}

TEST(BenchHelp, ListsOptionsAndIsRight) {
  const BenchOutcome help = run_bench({"moe", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_NE(help.out.find("--capacity"), std::string::npos);
  EXPECT_EQ(run_bench({"--version"}).exit_code, 0);
}

}  // namespace
}  // namespace ep::test
