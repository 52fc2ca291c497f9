// SPDX-License-Identifier: Apache-2.0
// Mistakes of the field, each caught by chaos within 1,000 seeds, where the right form passes.
#include "fabric/chaos/chaos.h"
#include "tests/fabric/chaos/small_protocols.h"
#include "tests/fabric/chaos/strong_protocol.h"
#include "tests/support/seeds.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <ostream>
#include <string>

namespace ep::fabric {
namespace {

using test::Form;
using test::StrongRules;
using test::Violation;

constexpr int kMutantSeeds = 1000;

/// Says by which seed, the first of all.
bool is_caught(const std::function<Violation(std::uint64_t)>& run) {
  for (int seed = 1; seed <= kMutantSeeds; ++seed) {
    const Violation violation = run(static_cast<std::uint64_t>(seed));
    if (violation.empty()) continue;
    std::printf("caught at seed %d: %s\n", seed, violation.c_str());
    return true;
  }
  return false;
}

int num_right_seeds() { return test::scaled_rounds(kMutantSeeds, 20 * kMutantSeeds); }

struct StrongMutant {
  const char* name;
  StrongRules rules;
};
std::ostream& operator<<(std::ostream& out, const StrongMutant& mutant) {
  return out << mutant.name;
}

Violation run_strong(std::uint64_t seed, ArrivalOrder order, const StrongRules& rules) {
  ChaosCounts counts;
  return test::run_strong(ChaosConfig::hostile(seed, order), rules, counts);
}

class StrongSignalMutants : public ::testing::TestWithParam<StrongMutant> {};

TEST_P(StrongSignalMutants, IsCaughtWhereOrderIsNotKept) {
  EXPECT_TRUE(is_caught([](std::uint64_t seed) {
    return run_strong(seed, ArrivalOrder::kUnordered, GetParam().rules);
  }));
}

/// Those that an ordered network forgives: so its tests never show them.
class StrongSignalMutantsInOrder : public ::testing::TestWithParam<StrongMutant> {};

TEST_P(StrongSignalMutantsInOrder, Passes) {
  for (const std::uint64_t seed : test::seeds(num_right_seeds())) {
    ASSERT_EQ(run_strong(seed, ArrivalOrder::kOrdered, GetParam().rules), "")
        << test::replay_command(seed);
  }
}

constexpr StrongMutant kAsWeak{"StrongTreatedAsWeak", {.waits_for_puts = false}};
constexpr StrongMutant kOneCount{"OneCountForAllEpochs", {.counts_by_epoch = false}};
constexpr StrongMutant kTruncatedAck{"TruncatedAck", {.has_whole_ack = false}};
constexpr StrongMutant kWholeRing{"WindowIsTheRing", {.keeps_half_free = false}};
constexpr auto kNameOf = [](const auto& tested) { return tested.param.name; };

INSTANTIATE_TEST_SUITE_P(Each,
                         StrongSignalMutants,
                         ::testing::Values(kAsWeak, kOneCount, kTruncatedAck, kWholeRing),
                         kNameOf);
INSTANTIATE_TEST_SUITE_P(Each,
                         StrongSignalMutantsInOrder,
                         ::testing::Values(kAsWeak, kOneCount, kTruncatedAck),
                         kNameOf);

class StrongSignal : public ::testing::TestWithParam<ArrivalOrder> {};

TEST_P(StrongSignal, CountedByEpochIsRight) {
  ChaosCounts counts;
  for (const std::uint64_t seed : test::seeds(num_right_seeds())) {
    ASSERT_EQ(test::run_strong(ChaosConfig::hostile(seed, GetParam()), {}, counts), "")
        << test::replay_command(seed);
  }
  EXPECT_GT(counts[ChaosDeed::kTorn], 0u);
  EXPECT_GT(counts[ChaosDeed::kBusy], 0u);
  EXPECT_EQ(counts[ChaosDeed::kReordered] > 0, GetParam() == ArrivalOrder::kUnordered);
  EXPECT_EQ(counts[ChaosDeed::kReorderedArrivals] > 0, GetParam() == ArrivalOrder::kUnordered);
}

INSTANTIATE_TEST_SUITE_P(BothOrders,
                         StrongSignal,
                         ::testing::Values(ArrivalOrder::kOrdered, ArrivalOrder::kUnordered));

struct SmallMutant {
  const char* name;
  Violation (*run)(const ChaosConfig&, Form);
};
std::ostream& operator<<(std::ostream& out, const SmallMutant& mutant) {
  return out << mutant.name;
}

class SmallMutants : public ::testing::TestWithParam<SmallMutant> {};

TEST_P(SmallMutants, IsCaught) {
  EXPECT_TRUE(is_caught([](std::uint64_t seed) {
    return GetParam().run(ChaosConfig::hostile(seed, ArrivalOrder::kUnordered), Form::kMutant);
  }));
}

TEST_P(SmallMutants, PassesInItsRightForm) {
  for (const ArrivalOrder order : {ArrivalOrder::kOrdered, ArrivalOrder::kUnordered}) {
    for (const std::uint64_t seed : test::seeds(num_right_seeds())) {
      ASSERT_EQ(GetParam().run(ChaosConfig::hostile(seed, order), Form::kRight), "")
          << test::replay_command(seed);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Each,
    SmallMutants,
    ::testing::Values(SmallMutant{"TokenRebuiltByWrap", test::run_token},
                      SmallMutant{"EqualUpdatesMerged", test::run_parked_updates},
                      SmallMutant{"QuietAfterThreeEmptyPolls", test::run_quiet},
                      SmallMutant{"SignalWithTheLastSegment", test::run_segments},
                      SmallMutant{"ParityWithoutGeneration", test::run_parity}),
    kNameOf);

}  // namespace
}  // namespace ep::fabric
