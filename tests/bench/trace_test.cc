// SPDX-License-Identifier: Apache-2.0
// Traces: round trips, and every way in which a file can be bad.
#include "bench/trace.h"

#include "bench/file_bytes.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <unistd.h>

namespace ep::bench {
namespace {

constexpr const char* kColumns = "step,rank,token,k,expert,weight\n";

/// Two steps, three ranks, T different per rank and step, 0 included; -1 and a repeat.
Trace sample_trace() {
  Trace trace = {.num_ranks = 3, .num_experts = 9, .topk = 2, .steps = {}};
  trace.steps.push_back({{.experts = {0, 8, -1, 3}, .weights = {0.5F, 0.25F, 0, 1}},
                         {.experts = {}, .weights = {}},
                         {.experts = {7, 7}, .weights = {1e-30F, 0.1F}}});
  trace.steps.push_back({{.experts = {}, .weights = {}},
                         {.experts = {-1, -1}, .weights = {0, 0}},
                         {.experts = {}, .weights = {}}});
  return trace;
}

void expect_equal(const Trace& got, const Trace& expected) {
  EXPECT_EQ(got.num_ranks, expected.num_ranks);
  EXPECT_EQ(got.num_experts, expected.num_experts);
  EXPECT_EQ(got.topk, expected.topk);
  ASSERT_EQ(got.num_steps(), expected.num_steps());
  for (int step = 0; step < expected.num_steps(); ++step) {
    for (int rank = 0; rank < expected.num_ranks; ++rank) {
      EXPECT_EQ(got.tokens(step, rank).experts, expected.tokens(step, rank).experts);
      EXPECT_EQ(got.tokens(step, rank).weights, expected.tokens(step, rank).weights);
    }
  }
}

TEST(BenchTrace, CsvComesBackAsItWas) {
  const Result<Trace> back = parse_trace_csv("t.csv", format_trace_csv(sample_trace()));
  ASSERT_TRUE(back.ok()) << back.status().message();
  expect_equal(*back, sample_trace());
  EXPECT_EQ(back->max_tokens(), 2);
}

TEST(BenchTrace, EptComesBackAsItWas) {
  const Result<Trace> back = parse_trace_ept("t.ept", format_trace_ept(sample_trace()));
  ASSERT_TRUE(back.ok()) << back.status().message();
  expect_equal(*back, sample_trace());
}

TEST(BenchTrace, FilesAreToldApartByTheirFirstBytes) {
  const auto folder = std::filesystem::temp_directory_path();
  for (const char* name : {"ep_trace_test.csv", "ep_trace_test.ept"}) {
    const std::string path = folder / (std::to_string(getpid()) + name);
    ASSERT_TRUE(write_trace(sample_trace(), path).ok());
    const Result<Trace> back = read_trace(path);
    std::filesystem::remove(path);
    ASSERT_TRUE(back.ok()) << back.status().message();
    expect_equal(*back, sample_trace());
  }
}

TEST(BenchTrace, CsvWithoutSelfDescriptionFollowsItsEntries) {
  const Result<Trace> trace = parse_trace_csv(
      "t", std::string(kColumns) + "0,1,0,2,5,0.5\r\n# a remark\n\n0, 1, 1, 0, -1, 0\n");
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_EQ(trace->num_ranks, 2);
  EXPECT_EQ(trace->num_experts, 6);
  EXPECT_EQ(trace->topk, 3);
  EXPECT_EQ(trace->num_tokens(0, 0), 0);
  EXPECT_EQ(trace->tokens(0, 1).experts, (std::vector<std::int32_t>{-1, -1, 5, -1, -1, -1}));
}

struct BadCsv {
  const char* before;   ///< the line with the columns
  const char* entries;  ///< behind it
  const char* message;  ///< has line and value
};

void expect_csv_error(const std::string& content, const std::string& message) {
  const Result<Trace> trace = parse_trace_csv("bad.csv", content);
  ASSERT_FALSE(trace.ok());
  EXPECT_EQ(trace.status().code(), Errc::kInvalidArgument);
  EXPECT_EQ(trace.status().message().find("bad.csv, line " + message), 0u)
      << trace.status().message();
}

TEST(BenchBadCsv, AFileWithoutColumnsIsRefused) {
  expect_csv_error("", "0: the file ends before");
  expect_csv_error("# a remark\n", "1: the file ends before");
  expect_csv_error("a,b\n", "1: the columns are 'a,b'");
}

class BenchBadCsvEntry : public testing::TestWithParam<BadCsv> {};

TEST_P(BenchBadCsvEntry, IsRefusedWithLineAndValue) {
  const BadCsv& bad = GetParam();
  expect_csv_error(std::string(bad.before) + kColumns + bad.entries, bad.message);
}

INSTANTIATE_TEST_SUITE_P(
    All,
    BenchBadCsvEntry,
    testing::Values(
        BadCsv{"", "", "1: the file has no entry"},
        BadCsv{"", "0,0,0,0,1\n", "2: 5 fields"},
        BadCsv{"", "0,0,0,0,1,1,\n", "2: 7 fields"},
        BadCsv{"", "x,0,0,0,1,1\n", "2: step = 'x'"},
        BadCsv{"", "0,0,0,0,1,1\n0,-1,0,0,1,1\n", "3: rank = '-1'"},
        BadCsv{"", "0,0,99999999999999999999,0,1,1\n", "2: token = '99999999999999999999'"},
        BadCsv{"", "0,0,0,32,1,1\n", "2: k = '32'"},
        BadCsv{"", "0,0,0,0,-2,1\n", "2: expert = '-2'"},
        BadCsv{"", "0,0,0,0,65536,1\n", "2: expert = '65536'"},
        BadCsv{"", "0,0,0,0,1.5,1\n", "2: expert = '1.5'"},
        BadCsv{"", "0,0,0,0,,1\n", "2: expert = ''"},
        BadCsv{"", "0,0,0,0,1,heavy\n", "2: weight = 'heavy'"},
        BadCsv{"", "0,0,0,0,1,nan\n", "2: weight = 'nan'"},
        BadCsv{"", "0,0,0,0,1,inf\n", "2: weight = 'inf'"},
        BadCsv{"", "0,0,0,0,1,1\n0,0,0,0,2,1\n", "3: (step 0, rank 0, token 0, k 0) after"},
        BadCsv{"", "0,0,0,1,1,1\n0,0,0,0,2,1\n", "3: (step 0, rank 0, token 0, k 0) after"},
        BadCsv{"", "1,0,0,0,1,1\n0,0,0,0,2,1\n", "3: (step 0, rank 0, token 0, k 0) after"},
        BadCsv{"", "0,0,1,0,1,1\n", "2: token = 1, but token 0"},
        BadCsv{"", "0,0,0,0,1,1\n0,0,2,0,1,1\n", "3: token = 2, but token 1"},
        BadCsv{"# ep-trace ranks=2\n", "0,2,0,0,1,1\n", "3: rank = 2, but the file says"},
        BadCsv{"# ep-trace experts=4\n", "0,0,0,0,4,1\n", "3: expert = 4, but the file says"},
        BadCsv{"# ep-trace topk=1\n", "0,0,0,1,0,1\n", "3: k = 1, but the file says"},
        BadCsv{"# ep-trace steps=1\n", "1,0,0,0,0,1\n", "3: step = 1, but the file says"},
        BadCsv{"# ep-trace layers=3\n", "", "1: unknown name 'layers'"},
        BadCsv{"# ep-trace ranks=0\n", "", "1: ranks = '0'"},
        BadCsv{"# ep-trace ranks=\n", "", "1: ranks = ''"},
        BadCsv{"# ep-trace steps=1048576 ranks=1024\n", "0,0,0,0,0,1\n",
               "3: 1048576 steps times 1024 ranks"}));

std::string with_word(std::string file, std::size_t offset, std::uint32_t word) {
  std::memcpy(file.data() + offset, &word, sizeof(word));
  return file;
}

std::string ept_error(const std::string& content) {
  const Result<Trace> trace = parse_trace_ept("bad.ept", content);
  if (trace.ok()) return "no error";
  EXPECT_EQ(trace.status().code(), Errc::kInvalidArgument);
  return trace.status().message();
}

// Offsets of sample_trace(): magic 0, counts 8, token counts 24 (2 x 3), then rank after rank.
constexpr std::size_t kCountsAt = 8;
constexpr std::size_t kTokenCountsAt = 24;
constexpr std::size_t kEntriesAt = 48;
constexpr std::size_t kFirstWeightAt = kEntriesAt + 4 * sizeof(std::int32_t);

TEST(BenchBadEpt, CountsOutOfRangeAreNamedWithTheirOffset) {
  const std::string file = format_trace_ept(sample_trace());
  EXPECT_EQ(ept_error(with_word(file, kCountsAt, 0)),
            "bad.ept, byte 8: num_steps = 0, must be 1 to 1048576");
  EXPECT_EQ(ept_error(with_word(file, kCountsAt + 4, 5000)),
            "bad.ept, byte 12: num_ranks = 5000, must be 1 to 1024");
  EXPECT_EQ(ept_error(with_word(file, kCountsAt + 8, 0xffffffff)),
            "bad.ept, byte 16: num_experts = 4294967295, must be 1 to 65536");
  EXPECT_EQ(ept_error(with_word(file, kCountsAt + 12, 33)),
            "bad.ept, byte 20: topk = 33, must be 1 to 32");
}

TEST(BenchBadEpt, EntriesOutOfRangeAreNamedWithTheirOffset) {
  const std::string file = format_trace_ept(sample_trace());
  EXPECT_EQ(ept_error(with_word(file, kEntriesAt + 4, 9)),
            "bad.ept, byte 52: expert = 9, must be -1 to 8");
  EXPECT_EQ(ept_error(with_word(file, kEntriesAt, static_cast<std::uint32_t>(-2))),
            "bad.ept, byte 48: expert = -2, must be -1 to 8");
  EXPECT_EQ(ept_error(with_word(file, kFirstWeightAt, 0x7f800000)),
            "bad.ept, byte 64: weight = inf, must be finite");
}

/// Whatever is cut off, and whatever size a damaged count asks for.
TEST(BenchBadEpt, EveryTruncationIsRefused) {
  const std::string file = format_trace_ept(sample_trace());
  for (std::size_t size = 0; size < file.size(); ++size) {
    EXPECT_NE(ept_error(file.substr(0, size)), "no error") << size;
  }
  EXPECT_NE(
      ept_error(with_word(file, kTokenCountsAt, 0xffffffff)).find("byte 48: a rank's tokens takes"),
      std::string::npos);
  EXPECT_EQ(ept_error(file + "x"),
            "bad.ept, byte " + std::to_string(file.size()) + ": 1 bytes after the last step");
  EXPECT_EQ(ept_error("EPTRACE2" + file.substr(8)),
            "bad.ept, byte 0: the file does not start with EPTRACE1");
}

TEST(BenchTrace, NamesAFileThatCannotBeRead) {
  const Result<Trace> missing = read_trace("/nonexistent/routing.ept");
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.status().message().find("/nonexistent/routing.ept"), std::string::npos);
  EXPECT_FALSE(write_trace(sample_trace(), "/nonexistent/routing.ept").ok());
}

}  // namespace
}  // namespace ep::bench
