// SPDX-License-Identifier: Apache-2.0
// Whatever chaos does, it keeps the contract of Transport: random traffic of three ranks, against
// what was asked for.
#include "fabric/chaos/chaos.h"
#include "fabric/chaos/random.h"
#include "tests/fabric/chaos/chaos_net.h"
#include "tests/support/seeds.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace ep::fabric {
namespace {

using Kind = NetEvent::Kind;

constexpr int kNumRanks = 3;
constexpr int kNumContexts = 2;
constexpr std::uint64_t kNumOps = 150;
constexpr std::int64_t kMaxBytes = 100;
constexpr int kPatience = 20000;
constexpr std::byte kPoison{0xdd};

test::MemoryNetOptions small_network() {
  test::MemoryNetOptions options{.num_ranks = kNumRanks};
  options.traits.num_contexts = kNumContexts;
  options.traits.max_outstanding = 16;  // less than the pieces that are under way
  return options;
}

/// Every operation has memory of its own on every rank: at its number, in each window.
class Traffic {
 public:
  Traffic(std::uint64_t seed, ArrivalOrder order)
      : order_(order),
        random_(ChaosRandom(seed).split(3)),
        net_(ChaosConfig::hostile(seed, order), kNumOps * kMaxBytes, small_network()) {
    for (int rank = 0; rank < kNumRanks; ++rank) {
      std::fill(net_.window(rank).begin(), net_.window(rank).end(), kPoison);
    }
    for (std::uint64_t number = 0; number < kNumOps; ++number) add_op(number);
  }

  std::string run() {
    for (int i = 0; i < kPatience && num_over_ < num_expected_ && wrong_.empty(); ++i) {
      post_some();
      net_.poll_all(1, [this](int rank, const NetEvent& event) { take(rank, event); });
    }
    if (wrong_.empty() && num_over_ < num_expected_) {
      wrong_ = std::to_string(num_over_) + " of " + std::to_string(num_expected_) + " events came";
    }
    // Nothing is left over.
    net_.poll_all(100, [this](int rank, const NetEvent& event) { take(rank, event); });
    return wrong_.empty() ? "" : wrong_ + "; " + net_.counts().to_string();
  }
  ChaosCounts counts() const { return net_.counts(); }

 private:
  struct Op {
    int rank = 0;
    int peer = 0;
    int context = 0;
    std::int64_t bytes = 0;
    bool is_read = false;
    bool has_immediate = false;
    bool is_complete = false;
    bool has_arrived = false;
  };

  void add_op(std::uint64_t number) {
    Op op{.rank = random_.below(kNumRanks),
          .peer = random_.below(kNumRanks),
          .context = random_.below(kNumContexts),
          .bytes = random_.below(kMaxBytes + 1),
          .is_read = random_.chance(200)};
    op.has_immediate = !op.is_read && (op.bytes == 0 || random_.chance(700));
    // A rank's writes to itself have one place: source and destination.
    if (op.peer == op.rank) op.peer = (op.peer + 1) % kNumRanks;
    const int source = op.is_read ? op.peer : op.rank;
    fill(source, number, op.bytes, content(number));
    num_expected_ += op.has_immediate ? 2 : 1;
    ops_.push_back(op);
  }

  static std::byte content(std::uint64_t number) {
    return static_cast<std::byte>(1 + number % 200);
  }
  std::byte* at(int rank, std::uint64_t number) {
    return net_.window(rank).data() + number * kMaxBytes;
  }
  void fill(int rank, std::uint64_t number, std::int64_t bytes, std::byte value) {
    std::fill_n(at(rank, number), bytes, value);
  }
  bool holds(int rank, std::uint64_t number, std::int64_t bytes) {
    return std::all_of(at(rank, number), at(rank, number) + bytes,
                       [&](std::byte b) { return b == content(number); });
  }

  void post_some() {
    for (int left = random_.below(8); left > 0 && next_ < kNumOps; --left) {
      if (post(next_) != Posted::kYes) return;
      ++next_;
    }
  }

  Posted post(std::uint64_t number) {
    const Op& op = ops_[number];
    const WindowPlace place{.window = 0, .offset = static_cast<std::int64_t>(number) * kMaxBytes};
    if (op.is_read) {
      return net_[op.rank].read({.peer = op.peer,
                                 .context = op.context,
                                 .dst = place,
                                 .src = place,
                                 .bytes = op.bytes,
                                 .cookie = number});
    }
    WriteOp write{.peer = op.peer,
                  .context = op.context,
                  .src = place,
                  .dst = place,
                  .bytes = op.bytes,
                  .cookie = number};
    if (op.has_immediate) write.immediate = static_cast<std::uint32_t>(number);
    return net_[op.rank].write(write);
  }

  void take(int rank, const NetEvent& event) {
    ++num_over_;
    if (event.kind == Kind::kArrival) {
      take_arrival(rank, event);
    } else {
      take_completion(rank, event);
    }
  }

  void take_arrival(int rank, const NetEvent& event) {
    Op& op = ops_[event.immediate];
    const std::string name = "op " + std::to_string(event.immediate);
    if (op.peer != rank || op.rank != event.peer) wrong_ = name + " arrived elsewhere";
    if (op.has_arrived) wrong_ = name + " arrived twice";
    if (!holds(rank, event.immediate, op.bytes)) wrong_ = name + " arrived torn";
    op.has_arrived = true;
    if (order_ == ArrivalOrder::kUnordered) return;
    for (std::uint64_t earlier = 0; earlier < event.immediate; ++earlier) {
      const Op& other = ops_[earlier];
      const bool is_same = other.rank == op.rank && other.peer == op.peer &&
                           other.context == op.context && !other.is_read;
      if (is_same && !holds(rank, earlier, other.bytes)) wrong_ = name + " overtook another one";
    }
  }

  void take_completion(int rank, const NetEvent& event) {
    Op& op = ops_[event.cookie];
    const std::string name = "op " + std::to_string(event.cookie);
    if (op.rank != rank || op.peer != event.peer) wrong_ = name + " was completed elsewhere";
    if (op.is_complete) wrong_ = name + " was completed twice";
    if (event.kind != (op.is_read ? Kind::kReadDone : Kind::kSourceFree)) wrong_ = name + " failed";
    if (!holds(rank, event.cookie, op.bytes)) wrong_ = name + " was read torn";
    op.is_complete = true;
    if (!op.is_read) fill(rank, event.cookie, op.bytes, kPoison);
  }

  const ArrivalOrder order_;
  ChaosRandom random_;
  test::ChaosNet net_;
  std::vector<Op> ops_;
  std::uint64_t next_ = 0;
  int num_expected_ = 0;
  int num_over_ = 0;
  std::string wrong_;
};

class ChaosContract : public ::testing::TestWithParam<ArrivalOrder> {};

TEST_P(ChaosContract, HoldsForRandomTraffic) {
  ChaosCounts counts;
  for (const std::uint64_t seed : test::seeds(test::scaled_rounds(500, 20000))) {
    Traffic traffic(seed, GetParam());
    ASSERT_EQ(traffic.run(), "") << test::replay_command(seed);
    counts += traffic.counts();
  }
  const bool is_unordered = GetParam() == ArrivalOrder::kUnordered;
  EXPECT_EQ(counts[ChaosDeed::kReordered] > 0, is_unordered);
  for (const ChaosDeed deed : {ChaosDeed::kDelayed, ChaosDeed::kTorn, ChaosDeed::kBusy,
                               ChaosDeed::kLateArrivals, ChaosDeed::kReorderedCompletions}) {
    EXPECT_GT(counts[deed], 0u) << static_cast<int>(deed);
  }
}

INSTANTIATE_TEST_SUITE_P(BothOrders,
                         ChaosContract,
                         ::testing::Values(ArrivalOrder::kOrdered, ArrivalOrder::kUnordered));

}  // namespace
}  // namespace ep::fabric
