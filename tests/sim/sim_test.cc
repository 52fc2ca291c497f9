// SPDX-License-Identifier: Apache-2.0
// The simulator finds what it is there for, finds nothing in right roles, and repeats itself.
#include "fabric/sim/memory.h"
#include "fabric/sim/net.h"
#include "tests/sim/prove.h"
#include "tests/sim/scenario.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

namespace ep::test {
namespace {

using fabric::sim::Machine;
using fabric::sim::Memory;
using fabric::sim::Mutation;
using fabric::sim::Order;
using fabric::sim::Sites;
using primitives::SignalStrength;

constexpr std::uint64_t kPlantedSeeds = 1000;  // within which a planted bug must show

TEST(Simulator, RightRolesPassEverySeed) {
  const SearchResult result =
      search_seeds(1, static_cast<std::uint64_t>(scaled_rounds(400, 10'000)), 2);
  EXPECT_EQ(result.findings, "");
}

TEST(Simulator, ASeedAlwaysGivesTheSameRun) {
  for (std::uint64_t seed : {1U, 7U, 20U, 33U}) {
    Sites sites;
    const SimResult first = run_scenario(draw_scenario(seed), sites);
    const SimResult second = run_scenario(draw_scenario(seed), sites);
    EXPECT_EQ(first.num_steps, second.num_steps) << seed;
    EXPECT_EQ(first.findings, second.findings) << seed;
  }
}

TEST(Simulator, ARunLeavesATrace) {
  Sites sites;
  const std::string path = ::testing::TempDir() + "sim_trace.json";
  run_scenario(draw_scenario(2), sites, path);
  std::ifstream file(path);
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  EXPECT_EQ(line, "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [");
  EXPECT_GT(std::count(std::istreambuf_iterator<char>(file), {}, '\n'), 1000);
}

// One mutant of each kind; ./dev prove tries all.
TEST(Simulator, FindsOneMutantOfEachKind) {
  const std::vector<Mutation> met = search_seeds(1, 60, 1).orders_met;
  std::vector<Mutation> mutants;
  for (const Order order : {Order::kRelease, Order::kAcquire, Order::kFence, Order::kFenceAcquired,
                            Order::kWaitRead, Order::kWaitLoaded, Order::kWaitLanded}) {
    const auto found =
        std::find_if(met.begin(), met.end(), [&](const Mutation& m) { return m.order == order; });
    ASSERT_NE(found, met.end()) << name_of(order);
    mutants.push_back(*found);
  }
  for (const MutantResult& mutant : search_mutants(mutants, kPlantedSeeds, 2))
    EXPECT_GT(mutant.seed, 0U) << mutant.mutation.to_string();
}

// A planted bug: rows are released without the proxy fence behind their bulk stores.
TEST(PlantedBugs, AMissingAsyncProxyFenceIsFound) {
  std::vector<Mutation> fences = search_seeds(1, 60, 1).orders_met;
  std::erase_if(fences, [](const Mutation& m) {
    return m.order != Order::kFence || m.file != "intranode/send_lane.h";
  });
  ASSERT_EQ(fences.size(), 1U);
  const MutantResult result = search_mutants(fences, kPlantedSeeds, 1).front();
  EXPECT_GT(result.seed, 0U);
  EXPECT_NE(result.finding.find("bulk stores, write"), std::string::npos) << result.finding;
}

/// Two ranks of one thread each, with a segment of zeros each.
class TwoRanks {
 public:
  explicit TwoRanks(std::uint64_t seed) : machine_(sites_, {.seed = seed, .num_ranks = 2}) {}

  Machine& machine() { return machine_; }
  std::byte* segment(int rank) { return machine_.space().part(rank); }
  template <class T>
  T* array(int rank, std::int64_t offset) {
    return layout::array_at<T>(segment(rank), offset);
  }
  std::string run(std::function<void()> first, std::function<void()> second) {
    machine_.add_host(0, std::move(first));
    machine_.add_host(1, std::move(second));
    machine_.run();
    return machine_.checker().violations().empty() ? "" : machine_.checker().violations().front();
  }
  template <class Read>
  void await(std::uint64_t expected, Read read) {
    while (read() != expected) machine_.relax();
  }

 private:
  Sites sites_;
  Machine machine_;
};

/// The first of kPlantedSeeds seeds whose run has a finding; 0: none.
std::uint64_t first_found(const std::function<std::string(std::uint64_t seed)>& run) {
  for (std::uint64_t seed = 1; seed <= kPlantedSeeds; ++seed) {
    if (!run(seed).empty()) return seed;
  }
  return 0;
}

constexpr std::uint64_t kRounds = 3;

/// Rank 0 sends rows by puts without a signal and says so by a signal behind them.
std::string send_rows(std::uint64_t seed, SignalStrength strength) {
  constexpr int kRows = 4;
  constexpr std::int64_t kRowBytes = 64;
  TwoRanks ranks(seed);
  fabric::sim::Wires wires(ranks.machine(), {ranks.segment(0), ranks.segment(1)}, 1, 1);
  fabric::sim::Net<true, true> here(wires, 0);
  fabric::sim::Net<true, true> there(wires, 1);
  const auto put = [&](auto& net, const primitives::NetPut& sent) {
    ranks.await(1, [&] { return std::uint64_t{net.try_put(0, sent) ? 1U : 0U}; });
  };
  const auto send = [&] {
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      for (int row = 0; row < kRows; ++row) {
        Memory::store(ranks.array<std::uint64_t>(0, row * kRowBytes), round);
        put(here, {.peer = 1,
                   .dst_offset = row * kRowBytes,
                   .src_offset = row * kRowBytes,
                   .bytes = kRowBytes});
      }
      put(here, {.peer = 1, .signal = {.strength = strength}});
      ranks.await(round, [&] { return here.signal_value(0); });  // the rows were read
    }
  };
  const auto receive = [&] {
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      ranks.await(round, [&] { return there.signal_value(0); });
      for (int row = 0; row < kRows; ++row) {
        const auto got = Memory::load(ranks.array<std::uint64_t>(1, row * kRowBytes));
        if (got != round) ranks.machine().checker().report("a row of another round");
      }
      put(there, {.peer = 0, .signal = {.strength = SignalStrength::kStrong}});
    }
  };
  return ranks.run(send, receive);
}

TEST(PlantedBugs, AWeakSignalThatIsUsedAsIfStrongIsFound) {
  EXPECT_EQ(first_found([](auto seed) { return send_rows(seed, SignalStrength::kStrong); }), 0U);
  EXPECT_GT(first_found([](auto seed) { return send_rows(seed, SignalStrength::kWeak); }), 0U);
}

/// Rank 0 stores a word at rank 1, then its flag; `has_generation`: the flag says of which round.
std::string raise_flags(std::uint64_t seed, bool has_generation) {
  TwoRanks ranks(seed);
  auto* word = ranks.array<std::uint64_t>(1, 0);
  auto* flag = ranks.array<std::uint64_t>(1, 64);
  auto* taken = ranks.array<std::uint64_t>(0, 0);
  const auto value_of = [&](std::uint64_t round) { return has_generation ? round : 1; };
  const auto write = [&] {
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      Memory::store(word, round);
      Memory::store_release_sys(flag, value_of(round));
      ranks.await(round, [&] { return Memory::load_acquire_sys(taken); });
    }
  };
  const auto read = [&] {
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      ranks.await(value_of(round), [&] { return Memory::load_acquire_sys(flag); });
      if (Memory::load(word) != round) ranks.machine().checker().report("a word of another round");
      Memory::store_release_sys(taken, round);
    }
  };
  return ranks.run(write, read);
}

TEST(PlantedBugs, AFlagWithoutAGenerationIsFound) {
  EXPECT_EQ(first_found([](auto seed) { return raise_flags(seed, true); }), 0U);
  EXPECT_GT(first_found([](auto seed) { return raise_flags(seed, false); }), 0U);
}

}  // namespace
}  // namespace ep::test
