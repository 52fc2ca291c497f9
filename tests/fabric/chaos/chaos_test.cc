// SPDX-License-Identifier: Apache-2.0
// Each thing that chaos does to traffic happens, is counted, and stays within the contract of
// Transport.
#include "fabric/chaos/chaos.h"

#include "tests/fabric/chaos/chaos_net.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ep::fabric {
namespace {

using test::ChaosNet;
using Kind = NetEvent::Kind;

constexpr int kOften = 400;  // polls after which everything has happened

struct Seen {
  int rank;
  NetEvent event;
};

class Log {
 public:
  ChaosNet::OnEvent recorder() {
    return [this](int rank, const NetEvent& event) { seen.push_back({rank, event}); };
  }
  std::vector<std::uint64_t> of(Kind kind, int rank, int peer) const {
    std::vector<std::uint64_t> numbers;
    for (const Seen& one : seen) {
      if (one.rank != rank || one.event.kind != kind || one.event.peer != peer) continue;
      numbers.push_back(kind == Kind::kArrival ? one.event.immediate : one.event.cookie);
    }
    return numbers;
  }
  std::vector<Seen> seen;
};

std::vector<std::uint64_t> first_numbers(std::uint64_t count) {
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t i = 0; i < count; ++i) numbers.push_back(i);
  return numbers;
}

std::vector<std::uint64_t> sorted(std::vector<std::uint64_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

/// 8 bytes at 8 * number, with the number as immediate and cookie.
WriteOp numbered_write(int peer, std::uint32_t number) {
  const WindowPlace place{.window = 0, .offset = 8 * std::int64_t{number}};
  return {
      .peer = peer, .src = place, .dst = place, .bytes = 8, .immediate = number, .cookie = number};
}

void post_numbered(ChaosNet& net, int rank, int peer, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) {
    ASSERT_EQ(net[rank].write(numbered_write(peer, i)), Posted::kYes) << i;
  }
}

TEST(Chaos, WithoutAnyItPassesEverythingOnInOrder) {
  ChaosNet net({.order = ArrivalOrder::kOrdered}, 1024);
  net.window(0)[17] = std::byte{5};
  post_numbered(net, 0, 1, 8);
  Log log;
  net.poll_all(1, log.recorder());
  EXPECT_EQ(log.of(Kind::kArrival, 1, 0).size(), 8u);
  EXPECT_EQ(net.window(1)[17], std::byte{5});
  EXPECT_EQ(net.counts().to_string(), "8 ops, 8 arrivals");
}

TEST(Chaos, OneSeedIsOneRun) {
  const auto run = [](std::uint64_t seed) {
    ChaosNet net(ChaosConfig::hostile(seed, ArrivalOrder::kUnordered), 1024);
    std::vector<std::pair<int, std::uint64_t>> trace;
    std::uint32_t posted = 0;
    for (int i = 0; i < kOften; ++i) {
      if (posted < 100 && net[0].write(numbered_write(1, posted)) == Posted::kYes) ++posted;
      net.poll_all(1, [&](int rank, const NetEvent& event) {
        trace.emplace_back(i * 4 + rank, event.immediate + event.cookie);
      });
    }
    return trace;
  };
  EXPECT_EQ(run(3), run(3));
  EXPECT_NE(run(3), run(4));
}

/// Whether a rank's arrivals from 0 were ever ahead of those from 1 by more than one.
bool is_zero_ahead_of_one(const Log& log) {
  std::map<int, int> num_arrived;
  for (const Seen& one : log.seen) {
    if (one.event.kind != Kind::kArrival) continue;
    ++num_arrived[one.event.peer];
    if (num_arrived[0] > num_arrived[1] + 1) return true;
  }
  return false;
}

TEST(Chaos, OrderedKeepsEachPeersOrderAndMixesPeers) {
  int num_zero_ahead = 0;
  constexpr int kNumSeeds = 20;
  for (std::uint64_t seed = 1; seed <= kNumSeeds; ++seed) {
    ChaosConfig config = ChaosConfig::hostile(seed, ArrivalOrder::kOrdered);
    config.busy = {};
    ChaosNet net(config, 1024, {.num_ranks = 3});
    EXPECT_EQ(net[2].traits().order, ArrivalOrder::kOrdered);
    for (std::uint32_t i = 0; i < 3; ++i) {
      ASSERT_EQ(net[0].write(numbered_write(2, i)), Posted::kYes);
      ASSERT_EQ(net[1].write(numbered_write(2, i)), Posted::kYes);
    }
    Log log;
    net.poll_all(kOften, log.recorder());
    EXPECT_EQ(log.of(Kind::kArrival, 2, 0), first_numbers(3));
    EXPECT_EQ(log.of(Kind::kArrival, 2, 1), first_numbers(3));
    num_zero_ahead += is_zero_ahead_of_one(log) ? 1 : 0;
    EXPECT_EQ(net.counts()[ChaosDeed::kReordered], 0u);
    EXPECT_EQ(net.counts()[ChaosDeed::kReorderedArrivals], 0u);
  }
  EXPECT_GT(num_zero_ahead, 0);
  EXPECT_LT(num_zero_ahead, kNumSeeds);
}

TEST(Chaos, UnorderedOvertakesWithinItsWindow) {
  constexpr std::uint32_t kNumWrites = 60;
  constexpr int kWindow = 5;
  ChaosNet net({.seed = 2, .window_ops = kWindow, .delay = {.permille = 500, .max_polls = 20}},
               1024);
  EXPECT_EQ(net[0].traits().order, ArrivalOrder::kUnordered);
  post_numbered(net, 0, 1, kNumWrites);
  Log log;
  net.poll_all(kOften, log.recorder());
  const auto arrived = log.of(Kind::kArrival, 1, 0);
  EXPECT_EQ(sorted(arrived), first_numbers(kNumWrites));
  EXPECT_NE(arrived, first_numbers(kNumWrites));
  std::set<std::uint64_t> missing;
  for (std::uint64_t i = 0; i < kNumWrites; ++i) missing.insert(i);
  for (const std::uint64_t number : arrived) {
    // Overtakes when posted, when it arrives, and the one that waits was overtaken when posted.
    EXPECT_LE(number, *missing.begin() + 3 * (kWindow - 1));
    missing.erase(number);
  }
  EXPECT_GT(net.counts()[ChaosDeed::kReordered], 5u);
}

TEST(Chaos, APayloadIsReadLateAndTheSourceIsFreeOnlyThen) {
  ChaosNet net({.seed = 1, .delay = {.permille = 1000, .max_polls = 10}}, 64);
  net.window(0)[0] = std::byte{1};
  post_numbered(net, 0, 1, 1);
  net.window(0)[0] = std::byte{2};  // against the rules: not free yet
  Log log;
  while (log.of(Kind::kSourceFree, 0, 1).empty()) net.poll_all(1, log.recorder());
  net.window(0)[0] = std::byte{3};
  net.poll_all(kOften, log.recorder());
  EXPECT_EQ(net.window(1)[0], std::byte{2});
  EXPECT_EQ(net.counts()[ChaosDeed::kDelayed], 1u);
}

TEST(Chaos, ASourceThatChangesBeforeItIsFreeIsCounted) {
  ChaosNet net({.seed = 1,
                .delay = {.permille = 500, .max_polls = 10},
                .late_completion = {.permille = 500, .max_polls = 10},
                .checks_sources = true},
               1024);
  post_numbered(net, 0, 1, 20);
  std::uint64_t num_free = 0;
  const auto reuse = [&](int rank, const NetEvent& event) {
    if (rank != 0) return;
    ++num_free;
    net.window(0)[static_cast<std::size_t>(8 * event.cookie)] = std::byte{1};
  };
  net.poll_all(kOften, reuse);
  EXPECT_EQ(num_free, 20u);
  EXPECT_EQ(net.counts()[ChaosDeed::kTouchedSources], 0u);
  post_numbered(net, 0, 1, 1);
  net.window(0)[7] = std::byte{1};
  net.poll_all(kOften, reuse);
  EXPECT_EQ(net.counts()[ChaosDeed::kTouchedSources], 1u);
}

/// Seen between two polls: some bytes are there and others are not.
bool is_partly_there(const std::vector<std::byte>& window) {
  const auto num_there = std::count(window.begin(), window.end(), std::byte{7});
  return num_there > 0 && num_there < static_cast<std::ptrdiff_t>(window.size());
}

class ChaosTearing : public ::testing::TestWithParam<ArrivalOrder> {};

TEST_P(ChaosTearing, PiecesLandApartAndTheImmediateAfterThem) {
  int num_partly_there = 0;
  int num_tails_first = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    ChaosNet net({.seed = seed,
                  .order = GetParam(),
                  .delay = {.permille = 1000, .max_polls = 10},
                  .tear = {.permille = 1000, .max_pieces = 4}},
                 64);
    std::fill(net.window(0).begin(), net.window(0).end(), std::byte{7});
    ASSERT_EQ(net[0].write({.peer = 1, .bytes = 64, .immediate = 9, .cookie = 4}), Posted::kYes);
    Log log;
    while (log.of(Kind::kArrival, 1, 0).empty()) {
      num_partly_there += is_partly_there(net.window(1)) ? 1 : 0;
      num_tails_first += net.window(1).back() > net.window(1).front() ? 1 : 0;
      net.poll_all(1, log.recorder());
    }
    EXPECT_EQ(net.window(1), net.window(0));
    net.poll_all(kOften, log.recorder());
    EXPECT_EQ(log.seen.size(), 2u) << "one arrival, one completion";
    EXPECT_GE(net.counts()[ChaosDeed::kPieces], 2u);
  }
  EXPECT_GT(num_partly_there, 0);
  EXPECT_GT(num_tails_first, 0);
}

INSTANTIATE_TEST_SUITE_P(BothOrders,
                         ChaosTearing,
                         ::testing::Values(ArrivalOrder::kOrdered, ArrivalOrder::kUnordered));

TEST(Chaos, AReadIsTornToo) {
  ChaosNet net({.seed = 1,
                .delay = {.permille = 1000, .max_polls = 10},
                .tear = {.permille = 1000, .max_pieces = 4}},
               64);
  std::fill(net.window(1).begin(), net.window(1).end(), std::byte{7});
  ASSERT_EQ(net[0].read({.peer = 1, .bytes = 64, .cookie = 4}), Posted::kYes);
  Log log;
  bool was_partly_there = false;
  while (log.of(Kind::kReadDone, 0, 1).empty()) {
    was_partly_there |= is_partly_there(net.window(0));
    net.poll_all(1, log.recorder());
  }
  EXPECT_TRUE(was_partly_there);
  EXPECT_EQ(net.window(0), net.window(1));
  EXPECT_EQ(log.of(Kind::kReadDone, 0, 1), std::vector<std::uint64_t>{4});
}

TEST(Chaos, OverAnUnorderedTransportItIsUnorderedAndTearsNothing) {
  test::MemoryNetOptions options;
  options.traits.order = ArrivalOrder::kUnordered;
  ChaosNet net(ChaosConfig::hostile(1, ArrivalOrder::kOrdered), 1024, options);
  EXPECT_EQ(net[0].traits().order, ArrivalOrder::kUnordered);
  for (std::uint32_t i = 0; i < 40; ++i) {
    while (net[0].write(numbered_write(1, i)) != Posted::kYes) {
    }
  }
  Log log;
  net.poll_all(kOften, log.recorder());
  EXPECT_EQ(net.counts()[ChaosDeed::kTorn], 0u);
  EXPECT_NE(net[0].describe().find("unordered, cannot tear: 40 ops"), std::string::npos)
      << net[0].describe();
}

TEST(Chaos, ASmallWriteOvertakesABigOne) {
  ChaosNet net({.seed = 1, .big = {.permille = 1000, .max_polls = 10}}, 8192);
  ASSERT_EQ(net[0].write({.peer = 1, .bytes = 8192, .immediate = 1}), Posted::kYes);
  ASSERT_EQ(net[0].write({.peer = 1, .bytes = 8, .immediate = 2}), Posted::kYes);
  Log log;
  net.poll_all(kOften, log.recorder());
  EXPECT_EQ(log.of(Kind::kArrival, 1, 0), (std::vector<std::uint64_t>{2, 1}));
}

TEST(Chaos, AnArrivalComesAfterItsData) {
  ChaosNet net({.seed = 1, .late_arrival = {.permille = 1000, .max_polls = 10}}, 64);
  net.window(0)[0] = std::byte{1};
  post_numbered(net, 0, 1, 1);
  Log log;
  net.poll_all(1, log.recorder());
  EXPECT_EQ(net.window(1)[0], std::byte{1});
  EXPECT_TRUE(log.of(Kind::kArrival, 1, 0).empty());
  net.poll_all(kOften, log.recorder());
  EXPECT_EQ(log.of(Kind::kArrival, 1, 0).size(), 1u);
  EXPECT_EQ(net.counts()[ChaosDeed::kLateArrivals], 1u);
}

TEST(Chaos, CompletionsComeLateAndShuffledThoughOrderIsKept) {
  ChaosNet net({.seed = 1,
                .order = ArrivalOrder::kOrdered,
                .late_completion = {.permille = 500, .max_polls = 20}},
               1024);
  post_numbered(net, 0, 1, 30);
  Log log;
  net.poll_all(kOften, log.recorder());
  const auto freed = log.of(Kind::kSourceFree, 0, 1);
  EXPECT_EQ(sorted(freed), first_numbers(30));
  EXPECT_NE(freed, first_numbers(30));
  EXPECT_EQ(log.of(Kind::kArrival, 1, 0), first_numbers(30));
  EXPECT_GT(net.counts()[ChaosDeed::kLateCompletions], 5u);
  EXPECT_GT(net.counts()[ChaosDeed::kReorderedCompletions], 5u);
}

TEST(Chaos, BusyComesInBursts) {
  ChaosNet net({.seed = 1, .busy = {.permille = 100, .max_calls = 5}}, 1024);
  int longest = 0;
  int now = 0;
  std::uint32_t posted = 0;
  while (posted < 50) {
    const bool is_busy = net[0].write(numbered_write(1, posted)) == Posted::kBusy;
    posted += is_busy ? 0 : 1;
    now = is_busy ? now + 1 : 0;
    longest = std::max(longest, now);
  }
  EXPECT_GT(longest, 1);
  Log log;
  net.poll_all(kOften, log.recorder());
  EXPECT_EQ(sorted(log.of(Kind::kArrival, 1, 0)), first_numbers(50));
  EXPECT_GT(net.counts()[ChaosDeed::kBusy], 5u);
}

TEST(Chaos, NoMoreIsHeldThanTheTransportMayHaveOutstanding) {
  ChaosNet net({.seed = 1, .delay = {.permille = 1000, .max_polls = 10}}, 1024);
  post_numbered(net, 0, 1, 64);
  EXPECT_EQ(net[0].write(numbered_write(1, 64)), Posted::kBusy);
  Log log;
  net.poll_all(kOften, log.recorder());
  EXPECT_EQ(net[0].write(numbered_write(1, 64)), Posted::kYes);
}

TEST(Chaos, ASilentPeerDoesNotSilenceOthers) {
  int apart = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    ChaosNet net({.seed = seed,
                  .order = ArrivalOrder::kOrdered,
                  .stall = {.permille = 50, .max_polls = 300}},
                 1024, {.num_ranks = 3});
    std::map<int, int> num_arrived;
    for (std::uint32_t i = 0; i < 30; ++i) {
      ASSERT_EQ(net[0].write(numbered_write(1, i)), Posted::kYes);
      ASSERT_EQ(net[0].write(numbered_write(2, i)), Posted::kYes);
      net.poll_all(1, [&](int rank, const NetEvent& event) {
        if (event.kind == Kind::kArrival) ++num_arrived[rank];
      });
      apart = std::max(apart, std::abs(num_arrived[1] - num_arrived[2]));
    }
    EXPECT_GT(net.counts()[ChaosDeed::kStalls], 0u);
  }
  EXPECT_GT(apart, 10);
}

TEST(Chaos, AContextIsSilentAsAWholeForAWhile) {
  test::MemoryNetOptions options;
  options.traits.num_contexts = 2;
  ChaosNet net({.seed = 1, .context_stall = {.permille = 1000, .max_polls = 50}}, 64, options);
  ASSERT_EQ(net[0].write({.peer = 1, .context = 1, .bytes = 8, .immediate = 1}), Posted::kYes);
  Log log;
  net.poll_all(1, log.recorder());
  EXPECT_TRUE(log.seen.empty());
  net.poll_all(60, log.recorder());
  EXPECT_EQ(log.seen.size(), 2u);
}

}  // namespace
}  // namespace ep::fabric
