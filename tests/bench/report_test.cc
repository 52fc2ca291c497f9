// SPDX-License-Identifier: Apache-2.0
// Results of ranks put together, and the lines that they become.
#include "bench/report.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sstream>
#include <string>
#include <vector>

namespace ep::bench {
namespace {

Job sample_job(Command command) {
  Job job;
  job.options.command = command;
  job.options.sms = 1;
  job.host.cpu = "a processor";
  return job;
}

/// Two ranks; the second is slower in the first iteration, the first in the second.
std::vector<RankResult> sample_results() {
  RankResult first;
  first.timings = {.dispatch = {10, 40},
                   .combine = {20, 20},
                   .layer = {100, 200},
                   .copy_in_rows = {6},
                   .copy_in_whole = {5},
                   .copy_out_rows = {7},
                   .copy_out_whole = {30}};
  first.received = {.checked = 30, .wrong = 0, .first_wrong = {}};
  first.output = {.checked = 20, .wrong = 0, .first_wrong = {}};
  first.output_hash = 1;
  first.num_tokens = 1024;
  first.num_received = 1500;
  first.expert_counts.assign(16, 64);
  first.rows_per_step = 1500;
  first.crossing_per_step = 600;
  first.arena_bytes = 4096;
  RankResult second = first;
  second.timings.dispatch = {30, 20};
  second.output_hash = 2;
  return {first, second};
}

const std::vector<std::string> kKeys = {"op",
                                        "backend",
                                        "ranks",
                                        "lsa_size",
                                        "net",
                                        "provider",
                                        "chaos_seed",
                                        "tokens",
                                        "hidden",
                                        "topk",
                                        "experts",
                                        "dtype",
                                        "layout",
                                        "sms",
                                        "mode",
                                        "routing",
                                        "capacity",
                                        "placement",
                                        "median_us",
                                        "p10_us",
                                        "p90_us",
                                        "p99_us",
                                        "logical_gbps",
                                        "moved_gbps",
                                        "fraction_of_memcpy",
                                        "physical_gbps",
                                        "fraction_of_ceiling",
                                        "host_us",
                                        "net_bytes_per_token",
                                        "predicted_net_bytes_per_token",
                                        "rows_checked",
                                        "rows_wrong",
                                        "output_hash",
                                        "arena_bytes",
                                        "fixed_bytes",
                                        "net_bytes",
                                        "date",
                                        "device",
                                        "driver",
                                        "clocks",
                                        "commit"};

TEST(BenchReport, AJsonLineHasExactlyTheDocumentedKeys) {
  for (Command command : {Command::kMoe, Command::kDispatch, Command::kCombine}) {
    const Job job = sample_job(command);
    for (const OpSummary& op : summarise(job.options, sample_results()).ops) {
      const auto line = nlohmann::ordered_json::parse(json_line(job, op, 4096));
      std::vector<std::string> keys;
      for (const auto& [key, value] : line.items()) keys.push_back(key);
      EXPECT_EQ(keys, kKeys);
      EXPECT_TRUE(line["rows_wrong"].is_number());
      EXPECT_GT(line["fixed_bytes"], 0);
      EXPECT_EQ(line["arena_bytes"], 4096);
      EXPECT_TRUE(line["driver"].is_null());
      for (const char* key : {"physical_gbps", "fraction_of_ceiling", "host_us"}) {
        EXPECT_TRUE(line[key].is_null()) << key << " has no meaning on the host";
      }
      EXPECT_EQ(line["capacity"].is_null(), true);
    }
  }
}

TEST(BenchReport, TheSlowestRankOfEveryIterationCounts) {
  const Summary summary = summarise(sample_job(Command::kMoe).options, sample_results());
  ASSERT_EQ(summary.ops.size(), 3u);
  const OpSummary& dispatch = summary.ops[0];
  EXPECT_EQ(dispatch.micros->median, 35) << "30 and 40";
  EXPECT_DOUBLE_EQ(*dispatch.fraction_of_memcpy, 5.0 / 35) << "the faster way of copying";
  EXPECT_DOUBLE_EQ(*dispatch.logical_gbps, 1500.0 * 4096 * 1e-3 / 35);
  EXPECT_DOUBLE_EQ(*dispatch.moved_gbps, 600.0 * 4096 * 1e-3 / 35);
  EXPECT_DOUBLE_EQ(*summary.ops[1].fraction_of_memcpy, 7.0 / 20);
  EXPECT_EQ(summary.ops[2].name, "moe");
  EXPECT_FALSE(summary.ops[2].fraction_of_memcpy.has_value());
}

/// As sample_results(), of two ranks with a GPU each.
std::vector<RankResult> gpu_results() {
  std::vector<RankResult> results = sample_results();
  for (RankResult& rank : results) {
    rank.timings.dispatch_host = {3, 5};
    rank.wire_per_step = 600;
  }
  results[1].timings.dispatch_host = {4, 4};
  return results;
}

Job gpu_job() {
  Job job = sample_job(Command::kDispatch);
  job.options.backend = Backend::kCuda;
  job.options.dtype = DType::kFp8E4M3;
  job.gpus = GpuMachine{.gpus = {{.name = "a GPU", .num_sms = 132, .clock_mhz = 1980}},
                        .driver = "580.1, CUDA 13.0",
                        .runtime = "13.0",
                        .reaches = {{true}}};
  return job;
}

TEST(BenchReport, AGpuLineHasPhysicalRatesOverTheCeiling) {
  const Job job = gpu_job();
  const Ceilings ceilings = {.push_gbps = 0.1, .pull_gbps = 7};
  const Summary summary = summarise(job.options, gpu_results(), ceilings);
  const auto line = nlohmann::json::parse(json_line(job, summary.ops[0], 4096));
  const double physical = 600.0 * (2048 + 16 * 4) * 1e-3 / 35;  // rows with scales over 35 us
  EXPECT_DOUBLE_EQ(line["physical_gbps"].get<double>(), physical);
  EXPECT_DOUBLE_EQ(line["fraction_of_ceiling"].get<double>(), physical / 0.1);
  EXPECT_EQ(line["fraction_of_memcpy"], line["fraction_of_ceiling"]);
  EXPECT_DOUBLE_EQ(line["host_us"].get<double>(), 4.5) << "the slower rank: 4 and 5";
  EXPECT_EQ(line["device"], "a GPU");
  EXPECT_EQ(line["driver"], "580.1, CUDA 13.0");
  EXPECT_EQ(line["clocks"], 1980);
}

TEST(BenchReport, WithoutCeilingsNoShareIsGiven) {
  const Job job = gpu_job();
  std::vector<RankResult> results = gpu_results();
  for (RankResult& rank : results) rank.timings.copy_in_rows = rank.timings.copy_in_whole = {};
  const auto line =
      nlohmann::json::parse(json_line(job, summarise(job.options, results).ops[0], 4096));
  EXPECT_TRUE(line["fraction_of_ceiling"].is_null());
  EXPECT_TRUE(line["fraction_of_memcpy"].is_null());
  EXPECT_TRUE(line["physical_gbps"].is_number());
}

TEST(BenchCeilings, AreTheBestOfBothDirectionsBusy) {
  const auto ceilings =
      parse_ceilings(R"({"op":"p2p","what":"push","sms":8,"directions":2,"gbps":336.5})"
                     "\n"
                     R"({"op":"p2p","what":"push","sms":132,"directions":2,"gbps":365.0})"
                     "\n"
                     R"({"op":"p2p","what":"pull","sms":16,"directions":1,"gbps":373.0})"
                     "\n"
                     R"({"op":"p2p","what":"pull","sms":16,"directions":2,"gbps":334.0})"
                     "\n\n"
                     R"({"op":"dispatch","directions":2})"
                     "\n");
  ASSERT_TRUE(ceilings.ok()) << ceilings.status().to_string();
  EXPECT_EQ(ceilings->push_gbps, 365.0);
  EXPECT_EQ(ceilings->pull_gbps, 334.0) << "one direction alone is faster, and no ceiling";
}

TEST(BenchCeilings, RefuseWhatIsNoRunOfP2p) {
  for (const char* text : {"", "fast", R"({"op":"dispatch"})", R"([1])",
                           R"({"op":"p2p","what":"push","directions":2})"}) {
    EXPECT_EQ(parse_ceilings(text).status().code(), Errc::kInvalidArgument) << text;
  }
  EXPECT_EQ(read_ceilings("/nonexistent/p2p").status().code(), Errc::kInvalidArgument);
}

TEST(BenchReport, AHashDependsOnTheOrderOfRanks) {
  const Options options = sample_job(Command::kMoe).options;
  std::vector<RankResult> results = sample_results();
  const auto hash = summarise(options, results).ops[1].output_hash;
  EXPECT_EQ(summarise(options, results).ops[2].output_hash, hash);
  std::swap(results[0], results[1]);
  EXPECT_NE(summarise(options, results).ops[1].output_hash, hash);
}

TEST(BenchReport, QuantisedDispatchCombinesBf16) {
  Job job = sample_job(Command::kMoe);
  job.options.dtype = DType::kFp8E4M3;
  const Summary summary = summarise(job.options, sample_results());
  EXPECT_EQ(nlohmann::json::parse(json_line(job, summary.ops[0], 0))["dtype"], "fp8");
  EXPECT_EQ(nlohmann::json::parse(json_line(job, summary.ops[1], 0))["dtype"], "bf16");
}

TEST(BenchReport, AWrongRowOfAnyRankIsSeen) {
  std::vector<RankResult> results = sample_results();
  EXPECT_FALSE(summarise(sample_job(Command::kMoe).options, results).has_wrong_row());
  results[1].received.add_wrong("rank 1: row 3");
  EXPECT_TRUE(summarise(sample_job(Command::kMoe).options, results).has_wrong_row());
}

std::string report_of(const Job& job, const std::vector<RankResult>& results) {
  std::ostringstream out;
  print_report(job, plan_buffers(job), results, summarise(job.options, results), out);
  return out.str();
}

TEST(BenchReport, TheLastLineCountsTheRows) {
  const std::string report = report_of(sample_job(Command::kMoe), sample_results());
  EXPECT_TRUE(report.ends_with("\n40 rows checked, 0 wrong\n")) << report;
  EXPECT_NE(report.find("1,024"), std::string::npos);
}

TEST(BenchReport, AWrongRowIsDescribed) {
  std::vector<RankResult> results = sample_results();
  results[1].output.add_wrong("rank 1: out[3, 4] = nan");
  const std::string report = report_of(sample_job(Command::kMoe), results);
  EXPECT_TRUE(report.ends_with("\n40 rows checked, 1 wrong\n")) << report;
  EXPECT_NE(report.find("out[3, 4] = nan"), std::string::npos);
}

TEST(BenchReport, ResultsComeBackFromBytesAsTheyWere) {
  RankResult sent = sample_results()[0];
  sent.output_hash = 0xfedcba9876543210u;
  sent.output.first_wrong = "row 7";
  const Result<RankResult> got = decode_result(encode_result(sent));
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->timings.dispatch, sent.timings.dispatch);
  EXPECT_EQ(got->timings.copy_out_whole, sent.timings.copy_out_whole);
  EXPECT_EQ(got->output_hash, sent.output_hash);
  EXPECT_EQ(got->output.first_wrong, "row 7");
  EXPECT_EQ(got->expert_counts, sent.expert_counts);
}

TEST(BenchReport, BytesThatAreNoResultAreRefused) {
  std::vector<std::byte> bytes = encode_result(sample_results()[0]);
  bytes.resize(bytes.size() / 2);
  EXPECT_EQ(decode_result(bytes).status().code(), Errc::kInternal);
  EXPECT_EQ(decode_result({}).status().code(), Errc::kInternal);
}

TEST(BenchReport, NumbersAreGroupedByThree) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1000), "1,000");
  EXPECT_EQ(with_commas(-1234567), "-1,234,567");
}

}  // namespace
}  // namespace ep::bench
