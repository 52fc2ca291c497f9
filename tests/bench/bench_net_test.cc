// SPDX-License-Identifier: Apache-2.0
// ep-bench net: every wire, every size, no wrong byte; and a provider that is not there.
#include "tests/bench/bench_process.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace ep::test {
namespace {

/// Names of the wires of a run.
std::set<std::string> wires_of(const BenchOutcome& outcome) {
  std::set<std::string> wires;
  for (const auto& line : outcome.lines()) {
    wires.insert(line["wire"].get<std::string>());
    EXPECT_EQ(line["op"], "net");
    EXPECT_EQ(line["messages_wrong"], 0);
    EXPECT_GT(line["messages_checked"], 0);
    for (const char* key : {"half_round_trip_us", "half_round_trip_over_raw", "gbps",
                            "gbps_over_raw", "messages_per_second", "announced_gbps"}) {
      EXPECT_GT(line[key], 0) << key;
    }
  }
  return wires;
}

TEST(BenchNet, MeasuresEveryWireAndSize) {
  const BenchOutcome outcome = run_bench(words_of("net --sizes 8,1000,300000 --iters 1 --json -"),
                                         {{"EP_NET_INTERFACE", "127.0.0.1"}});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(wires_of(outcome),
            (std::set<std::string>{"raw_tcp", "transport", "put_ordered", "put_unordered"}));
  EXPECT_EQ(outcome.lines().size(), 12u);
  EXPECT_NE(outcome.err.find("checked, 0 wrong"), std::string::npos) << outcome.err;
}

TEST(BenchNet, RunsWithoutRelyingOnOrder) {
  const BenchOutcome outcome = run_bench(words_of("net --sizes 64 --iters 1 --unordered --json -"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(wires_of(outcome), (std::set<std::string>{"raw_tcp", "transport", "put_unordered"}));
}

TEST(BenchNet, NamesAWrongProviderAndThoseThatExist) {
  const BenchOutcome outcome = run_bench(words_of("net --provider carrier-pigeon"));
  EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
  EXPECT_NE(outcome.err.find("carrier-pigeon"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("libfabric has:"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace ep::test
