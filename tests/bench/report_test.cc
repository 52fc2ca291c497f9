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

const std::vector<std::string> kKeys = {"op",           "backend",
                                        "ranks",        "lsa_size",
                                        "tokens",       "hidden",
                                        "topk",         "experts",
                                        "dtype",        "layout",
                                        "sms",          "mode",
                                        "routing",      "capacity",
                                        "placement",    "median_us",
                                        "p10_us",       "p90_us",
                                        "p99_us",       "logical_gbps",
                                        "moved_gbps",   "fraction_of_memcpy",
                                        "rows_checked", "rows_wrong",
                                        "output_hash",  "arena_bytes",
                                        "date",         "device",
                                        "driver",       "clocks",
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
      EXPECT_EQ(line["arena_bytes"], 4096);
      EXPECT_TRUE(line["driver"].is_null());
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
