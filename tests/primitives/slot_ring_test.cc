// SPDX-License-Identifier: Apache-2.0
// The ring between an owner and a reader: who waits for which pair, and where its row lies.
#include "primitives/slot_ring.h"

#include "primitives/ticket.h"
#include "tests/primitives/virtual_exec.h"
#include "tests/support/control_window.h"
#include "tests/support/problem.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace ep::test {
namespace {

using primitives::SoloGroup;

constexpr int kWriter = 2;
constexpr int kReader = 1;
constexpr int kNumRanks = 3;
constexpr std::uint64_t kEpoch = 9;
constexpr std::int64_t kRowBytes = 64;

/// One thread plays both ends.
class SlotRing : public ::testing::Test {
 protected:
  using Ring = primitives::SlotRing<VirtualExec>;
  static constexpr std::int64_t kPairs = 60;
  static constexpr int kSlots = 3;
  static constexpr std::int64_t kRows = kSlots * layout::kRingSlotRows;

  SlotRing() {
    window_.set_timeout(1'000'000);
    VirtualExec::restart();
  }

  primitives::OpContext<VirtualExec> op_of(int rank) {
    window_.set_next_epoch(kEpoch);
    return primitives::OpContext<VirtualExec>(window_.params(rank));
  }
  /// Pairs of the token that the reader looks at.
  using Pairs = std::array<std::int32_t, kNumRanks>;
  static Pairs of_writer(std::int32_t pair) {
    Pairs pairs;
    pairs.fill(-1);
    pairs[kWriter] = pair;
    return pairs;
  }
  bool acquire(std::int64_t first, int count = 1) {
    return writer_.acquire(SoloGroup{}, kReader, first, count);
  }
  void release(std::int32_t pair) { reader_.release(SoloGroup{}, of_writer(pair).data()); }
  bool are_here(const Pairs& pairs) { return reader_.are_here(SoloGroup{}, pairs.data()); }
  bool await_all(const Pairs& pairs) { return reader_.await_all(SoloGroup{}, pairs.data()); }
  std::uint64_t& freed_word(std::int64_t pair) {
    return window_.array<std::uint64_t>(
        kWriter, window_.layout().ring_freed)[window_.layout().token_index(kReader, pair)];
  }

  ControlWindow window_{{.num_ranks = kNumRanks,
                         .max_tokens = kPairs,
                         .max_row_bytes = kRowBytes,
                         .ring_slots = kSlots}};
  primitives::OpContext<VirtualExec> writer_op_ = op_of(kWriter);
  primitives::OpContext<VirtualExec> reader_op_ = op_of(kReader);
  Ring writer_{writer_op_};
  Ring reader_{reader_op_};
};

TEST_F(SlotRing, TheFirstPairInARowWaitsForNobody) {
  EXPECT_TRUE(acquire(0, static_cast<int>(kRows)));
  EXPECT_TRUE(acquire(kRows - 1));
  EXPECT_EQ(VirtualExec::machine().num_polls, 0);
}

TEST_F(SlotRing, APairTakesTheRowOfItsNumberAtTheReader) {
  std::byte* payload = window_.region(kReader) + window_.layout().ring_payload;
  for (std::int64_t pair = 0; pair < kPairs; ++pair) {
    std::byte* row = payload + (kWriter * kRows + pair % kRows) * kRowBytes;
    EXPECT_EQ(writer_.row_at(kReader, pair), row) << pair;
    EXPECT_EQ(reader_.row_from(kWriter, pair), row) << pair;
  }
}

TEST_F(SlotRing, WriterBlocksUntilThePreviousPairOfTheRowWasRead) {
  VirtualExec::restart([&](int polls) {
    if (polls == 100) release(1);
  });
  EXPECT_TRUE(acquire(1 + kRows));
  EXPECT_EQ(VirtualExec::machine().num_polls, 100);
}

TEST_F(SlotRing, PairsAcquiredTogetherWaitForAllThatHadTheirRows) {
  for (const std::int32_t pair : {0, 1, 3}) release(pair);
  VirtualExec::restart([&](int polls) {
    if (polls == 100) release(2);
  });
  EXPECT_TRUE(acquire(kRows, 4));
  EXPECT_EQ(VirtualExec::machine().num_polls, 100);
  EXPECT_TRUE(acquire(kRows - 2, 4));  // two of them are the first in their rows
  EXPECT_EQ(VirtualExec::machine().num_polls, 100);
}

TEST_F(SlotRing, AReleaseFreesNoOtherRow) {
  for (const std::int32_t pair : {0, 2, 1 + static_cast<std::int32_t>(kRows)}) release(pair);
  EXPECT_FALSE(acquire(1 + kRows));
  EXPECT_EQ(window_.fault(kWriter).site,
            static_cast<std::uint32_t>(primitives::WaitSite::kRingFreed));
  EXPECT_EQ(window_.fault(kWriter).peer, kReader);
}

TEST_F(SlotRing, WordsOfAnEarlierOperationDoNotCount) {
  freed_word(1) = kEpoch - 1;
  EXPECT_FALSE(acquire(1 + kRows));
  EXPECT_EQ(window_.fault(kWriter).expected, kEpoch);
  EXPECT_EQ(window_.fault(kWriter).got, kEpoch - 1);
}

TEST_F(SlotRing, EachPublishedPairIsHere) {
  writer_.publish(SoloGroup{}, kReader, 4, 3);
  for (std::int32_t pair = 0; pair < 10; ++pair) {
    EXPECT_EQ(are_here(of_writer(pair)), pair >= 4 && pair < 7) << pair;
  }
  EXPECT_TRUE(await_all(of_writer(6)));
  EXPECT_EQ(VirtualExec::machine().num_polls, 0);
}

TEST_F(SlotRing, ATokenNeedsThePairsOfAllItsOwners) {
  Pairs pairs = of_writer(4);
  pairs[0] = 7;
  writer_.publish(SoloGroup{}, kReader, 4, 1);
  EXPECT_FALSE(are_here(pairs));
  const primitives::OpContext<VirtualExec> other(window_.params(0));
  VirtualExec::restart([&](int polls) {
    if (polls == 100) Ring(other).publish(SoloGroup{}, kReader, 7, 1);
  });
  EXPECT_TRUE(await_all(pairs));
  EXPECT_EQ(VirtualExec::machine().num_polls, 100);
  EXPECT_TRUE(are_here(pairs));
}

TEST_F(SlotRing, ATokenWithoutPairsWaitsForNobody) {
  EXPECT_TRUE(are_here(of_writer(-1)));
  EXPECT_TRUE(await_all(of_writer(-1)));
  EXPECT_EQ(VirtualExec::machine().num_polls, 0);
}

TEST_F(SlotRing, AReaderThatWaitsInVainNamesTheWriter) {
  writer_.publish(SoloGroup{}, kReader, 3, 1);
  EXPECT_FALSE(await_all(of_writer(4)));
  EXPECT_EQ(window_.fault(kReader).site,
            static_cast<std::uint32_t>(primitives::WaitSite::kRingReady));
  EXPECT_EQ(window_.fault(kReader).peer, kWriter);
}

TEST_F(SlotRing, BothEndsStopWhenTheGroupGaveUp) {
  window_.abort_word(kWriter) = 1;
  window_.abort_word(kReader) = 1;
  EXPECT_FALSE(acquire(1 + kRows));
  EXPECT_FALSE(await_all(of_writer(4)));
  EXPECT_EQ(window_.fault(kWriter).claimed, 0U);
}

/// Rows of many pairs through a ring, by several lanes at each end: ThreadSanitizer watches.
class Stream {
 public:
  Stream(int num_slots, std::int64_t num_pairs, int pairs_per_ticket)
      : num_pairs_(num_pairs),
        pairs_per_ticket_(pairs_per_ticket),
        window_({.num_ranks = kNumRanks,
                 .max_tokens = num_pairs,
                 .max_row_bytes = kRowBytes,
                 .ring_slots = num_slots}) {}

  void run(std::uint64_t epoch, int num_lanes) {
    window_.set_next_epoch(epoch);
    push_counter_ = 0;
    pull_counter_ = 0;
    std::vector<std::thread> lanes;
    for (int lane = 0; lane < num_lanes; ++lane) {
      lanes.emplace_back([this] { push(); });
      lanes.emplace_back([this] { pull(); });
    }
    for (std::thread& lane : lanes) lane.join();
  }
  int num_wrong() const { return num_wrong_; }

 private:
  using Exec = primitives::HostExec;
  using Op = primitives::OpContext<Exec>;
  using Tickets = primitives::TicketStream<Exec>;

  static unsigned char coded(const Op& op, std::int64_t pair) {
    return static_cast<unsigned char>(static_cast<std::uint64_t>(pair) * 7 + op.epoch);
  }

  void push() {
    const Op op(window_.params(kWriter));
    const primitives::SlotRing<Exec> ring(op);
    Tickets tickets(SoloGroup{}, &push_counter_, layout::div_up(num_pairs_, pairs_per_ticket_));
    for (std::int64_t i = tickets.next(SoloGroup{}); i >= 0; i = tickets.next(SoloGroup{})) {
      const std::int64_t first = i * pairs_per_ticket_;
      const int count =
          static_cast<int>(std::min<std::int64_t>(pairs_per_ticket_, num_pairs_ - first));
      if (!ring.acquire(SoloGroup{}, kReader, first, count)) ++num_wrong_;
      for (std::int64_t pair = first; pair < first + count; ++pair)
        std::memset(ring.row_at(kReader, pair), coded(op, pair), kRowBytes);
      ring.publish(SoloGroup{}, kReader, first, count);
    }
  }

  void pull() {
    const Op op(window_.params(kReader));
    const primitives::SlotRing<Exec> ring(op);
    Tickets tickets(SoloGroup{}, &pull_counter_, num_pairs_);
    for (std::int64_t i = tickets.next(SoloGroup{}); i >= 0; i = tickets.next(SoloGroup{})) {
      std::array<std::int32_t, kNumRanks> pairs{-1, -1, -1};
      pairs[kWriter] = static_cast<std::int32_t>(i);
      if (!ring.are_here(SoloGroup{}, pairs.data()) && !ring.await_all(SoloGroup{}, pairs.data())) {
        ++num_wrong_;
      }
      const std::byte* row = ring.row_from(kWriter, i);
      for (std::int64_t at = 0; at < kRowBytes; ++at) {
        if (row[at] != std::byte{coded(op, i)}) ++num_wrong_;
      }
      ring.release(SoloGroup{}, pairs.data());
    }
  }

  std::int64_t num_pairs_;
  int pairs_per_ticket_;
  ControlWindow window_;
  std::uint64_t push_counter_ = 0;
  std::uint64_t pull_counter_ = 0;
  std::atomic<int> num_wrong_{0};
};

TEST(SlotRingStream, RowsArriveThroughAnyNumberOfSlots) {
  Random random(11);
  for (int round = 0; round < scaled_rounds(12, 500); ++round) {
    const int num_slots = 1 + round % 3;
    Stream stream(num_slots, uniform(random, 1, 200), 1 << round % 4);
    for (const std::uint64_t epoch : {1, 2, 3}) stream.run(epoch, 1 + round % 3);
    ASSERT_EQ(stream.num_wrong(), 0) << "round " << round << ", slots " << num_slots;
  }
}

TEST(SlotRingStream, RowsArriveAcrossTheWrapOfTheTags) {
  Stream stream(1, 40, 2);
  for (const std::uint64_t epoch : {0xFFFFFFFEU, 0xFFFFFFFFU}) stream.run(epoch, 2);
  for (const std::uint64_t epoch : {0U, 1U}) stream.run((std::uint64_t{1} << 32) + epoch, 2);
  EXPECT_EQ(stream.num_wrong(), 0);
}

}  // namespace
}  // namespace ep::test
