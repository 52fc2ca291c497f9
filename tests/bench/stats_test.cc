// SPDX-License-Identifier: Apache-2.0
// Order statistics, hashes and the description of the machine.
#include "bench/stats.h"

#include "bench/hash.h"
#include "bench/host_info.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <vector>

namespace ep::bench {
namespace {

TEST(BenchStats, OneSampleIsEveryPercentile) {
  const Stats stats = stats_of({7.0});
  EXPECT_EQ(stats.min, 7.0);
  EXPECT_EQ(stats.median, 7.0);
  EXPECT_EQ(stats.p10, 7.0);
  EXPECT_EQ(stats.p99, 7.0);
}

TEST(BenchStats, PercentilesInterpolate) {
  const Stats stats = stats_of({40, 10, 30, 20, 50});
  EXPECT_EQ(stats.min, 10.0);
  EXPECT_EQ(stats.median, 30.0);
  EXPECT_DOUBLE_EQ(stats.p10, 14.0);
  EXPECT_DOUBLE_EQ(stats.p90, 46.0);
  EXPECT_DOUBLE_EQ(stats.p99, 49.6);
}

TEST(BenchStats, AnEvenNumberOfSamplesHasItsMedianBetweenTwo) {
  EXPECT_EQ(stats_of({1, 2, 3, 10}).median, 2.5);
}

TEST(BenchStats, TheSlowestRankCountsInEveryIteration) {
  EXPECT_EQ(slowest({{1, 5, 3}, {2, 4, 9}}), (std::vector<double>{2, 5, 9}));
}

TEST(BenchHash, FingerprintsDependOnOrderAndLength) {
  const std::array<std::byte, 9> bytes = {std::byte{1}, std::byte{2}};
  const auto of = [](std::span<const std::byte> first, std::span<const std::byte> second) {
    Fingerprint fingerprint;
    fingerprint.add(first);
    fingerprint.add(second);
    return fingerprint.value();
  };
  const std::span<const std::byte> all = bytes;
  EXPECT_NE(of(all.first(1), all.subspan(1, 1)), of(all.subspan(1, 1), all.first(1)));
  EXPECT_NE(of(all.first(8), all.first(0)), of(all.first(9), all.first(0)));
  EXPECT_EQ(of(all, all), of(all, all));
}

TEST(BenchHostInfo, ParsesSizesOfSysfs) {
  EXPECT_EQ(parse_size("491520K"), 503'316'480);
  EXPECT_EQ(parse_size("2M"), 2 << 20);
  EXPECT_EQ(parse_size("64"), 64);
  EXPECT_FALSE(parse_size("").has_value());
  EXPECT_FALSE(parse_size("12 K").has_value());
  EXPECT_FALSE(parse_size("-1K").has_value());
}

TEST(BenchHostInfo, FindsThisMachine) {
  const HostInfo info = read_host_info();
  EXPECT_GE(info.num_cpus, 1);
  EXPECT_GT(info.cache_bytes, 0);
  EXPECT_GT(info.memory_bytes, info.cache_bytes / 64);
}

}  // namespace
}  // namespace ep::bench
