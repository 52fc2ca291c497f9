// SPDX-License-Identifier: Apache-2.0
// The ring between an owner and a reader: who waits for which chunk, and where its rows lie.
#include "primitives/slot_ring.h"

#include "primitives/ticket.h"
#include "tests/primitives/virtual_exec.h"
#include "tests/support/control_window.h"
#include "tests/support/problem.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

namespace ep::test {
namespace {

using primitives::SoloGroup;

constexpr int kWriter = 2;
constexpr int kReader = 1;
constexpr std::int64_t kNoPrevious = -1;
constexpr std::uint64_t kEpoch = 9;
constexpr std::int64_t kRowBytes = 64;

/// One thread plays both ends.
class SlotRing : public ::testing::Test {
 protected:
  using Ring = primitives::SlotRing<VirtualExec>;
  static constexpr std::int64_t kChunks = 24;
  static constexpr int kSlots = 3;

  SlotRing() {
    window_.set_timeout(1'000'000);
    VirtualExec::restart();
  }

  primitives::OpContext<VirtualExec> op_of(int rank) {
    window_.set_next_epoch(kEpoch);
    return primitives::OpContext<VirtualExec>(window_.params(rank));
  }
  std::byte* acquire(std::int64_t chunk, std::int64_t previous) {
    return writer_.acquire_slot(SoloGroup{}, kReader, chunk, previous);
  }
  std::uint64_t& freed_word(std::int64_t chunk) {
    return window_.array<std::uint64_t>(
        kWriter, window_.layout().ring_freed)[window_.layout().chunk_index(kReader, chunk)];
  }

  ControlWindow window_{{.num_ranks = 3,
                         .max_tokens = kChunks * layout::kChunkTokens,
                         .max_row_bytes = kRowBytes,
                         .ring_slots = kSlots}};
  primitives::OpContext<VirtualExec> writer_op_ = op_of(kWriter);
  primitives::OpContext<VirtualExec> reader_op_ = op_of(kReader);
  Ring writer_{writer_op_};
  Ring reader_{reader_op_};
};

TEST_F(SlotRing, TheFirstChunkInASlotWaitsForNobody) {
  for (const std::int64_t chunk : {0, 1, 2, 7, 23}) {
    EXPECT_NE(acquire(chunk, kNoPrevious), nullptr) << chunk;
  }
  EXPECT_EQ(VirtualExec::machine().num_polls, 0);
}

TEST_F(SlotRing, AChunkTakesTheSlotOfItsNumberAtTheReader) {
  std::byte* payload = window_.region(kReader) + window_.layout().ring_payload;
  const std::int64_t slot_bytes = layout::kChunkTokens * kRowBytes;
  for (std::int64_t chunk = 0; chunk < kChunks; ++chunk) {
    const std::int64_t slot = std::int64_t{kWriter} * kSlots + chunk % kSlots;
    EXPECT_EQ(acquire(chunk, kNoPrevious), payload + slot * slot_bytes) << chunk;
  }
}

TEST_F(SlotRing, TheReaderLooksWhereTheWriterWrote) {
  for (const std::int64_t chunk : {0, 4, 23}) {
    const std::byte* written = acquire(chunk, kNoPrevious);
    writer_.publish(SoloGroup{}, kReader, chunk);
    EXPECT_EQ(reader_.await(SoloGroup{}, kWriter, chunk), written) << chunk;
  }
}

TEST_F(SlotRing, ProducerBlocksUntilThePreviousChunkOfTheSlotWasRead) {
  VirtualExec::restart([&](int polls) {
    if (polls == 100) reader_.release(SoloGroup{}, kWriter, 1);
  });
  EXPECT_NE(acquire(4, 1), nullptr);
  EXPECT_EQ(VirtualExec::machine().num_polls, 100);
}

TEST_F(SlotRing, ChunksWithoutRowsAreWaitedForByNobody) {
  // Chunks 4 and 7 had no rows: nobody writes or frees them, and chunk 10 follows chunk 1.
  reader_.release(SoloGroup{}, kWriter, 1);
  EXPECT_NE(acquire(10, 1), nullptr);
  EXPECT_EQ(VirtualExec::machine().num_polls, 0);
}

TEST_F(SlotRing, AReleaseFreesNoOtherSlot) {
  for (const std::int64_t chunk : {0, 2, 4, 7}) reader_.release(SoloGroup{}, kWriter, chunk);
  EXPECT_EQ(acquire(4, 1), nullptr);
  EXPECT_EQ(window_.fault(kWriter).site,
            static_cast<std::uint32_t>(primitives::WaitSite::kRingFreed));
  EXPECT_EQ(window_.fault(kWriter).peer, kReader);
}

TEST_F(SlotRing, WordsOfAnEarlierOperationDoNotCount) {
  freed_word(1) = kEpoch - 1;
  EXPECT_EQ(acquire(4, 1), nullptr);
  EXPECT_EQ(window_.fault(kWriter).expected, kEpoch);
  EXPECT_EQ(window_.fault(kWriter).got, kEpoch - 1);
}

TEST_F(SlotRing, AReaderThatWaitsInVainNamesTheWriter) {
  writer_.publish(SoloGroup{}, kReader, 3);
  EXPECT_EQ(reader_.await(SoloGroup{}, kWriter, 4), nullptr);
  EXPECT_EQ(window_.fault(kReader).site,
            static_cast<std::uint32_t>(primitives::WaitSite::kRingReady));
  EXPECT_EQ(window_.fault(kReader).peer, kWriter);
}

TEST_F(SlotRing, BothEndsStopWhenTheGroupGaveUp) {
  window_.abort_word(kWriter) = 1;
  window_.abort_word(kReader) = 1;
  EXPECT_EQ(acquire(4, 1), nullptr);
  EXPECT_EQ(reader_.await(SoloGroup{}, kWriter, 4), nullptr);
  EXPECT_EQ(window_.fault(kWriter).claimed, 0U);
}

/// Rows of many chunks through a ring, by several lanes at each end: ThreadSanitizer watches.
class Stream {
 public:
  Stream(int num_slots, std::vector<bool> has_rows)
      : has_rows_(std::move(has_rows)),
        window_({.num_ranks = 3,
                 .max_tokens = num_chunks() * layout::kChunkTokens,
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
  static constexpr std::size_t kChunkBytes = layout::kChunkTokens * kRowBytes;

  std::int64_t num_chunks() const { return static_cast<std::int64_t>(has_rows_.size()); }
  bool has_rows(std::int64_t chunk) const { return has_rows_[static_cast<std::size_t>(chunk)]; }

  std::int64_t previous_of(std::int64_t chunk) const {
    std::int64_t previous = chunk - window_.layout().shape.ring_slots;
    while (previous >= 0 && !has_rows(previous)) previous -= window_.layout().shape.ring_slots;
    return previous;
  }

  static unsigned char coded(const Op& op, std::int64_t chunk) {
    return static_cast<unsigned char>(static_cast<std::uint64_t>(chunk) * 7 + op.epoch);
  }

  void push() {
    const Op op(window_.params(kWriter));
    const primitives::SlotRing<Exec> ring(op);
    Tickets tickets(SoloGroup{}, &push_counter_, num_chunks());
    for (std::int64_t i = tickets.next(SoloGroup{}); i >= 0; i = tickets.next(SoloGroup{})) {
      if (!has_rows(i)) continue;
      std::byte* slot = ring.acquire_slot(SoloGroup{}, kReader, i, previous_of(i));
      std::memset(slot, coded(op, i), kChunkBytes);
      ring.publish(SoloGroup{}, kReader, i);
    }
  }

  void pull() {
    const Op op(window_.params(kReader));
    const primitives::SlotRing<Exec> ring(op);
    Tickets tickets(SoloGroup{}, &pull_counter_, num_chunks());
    for (std::int64_t i = tickets.next(SoloGroup{}); i >= 0; i = tickets.next(SoloGroup{})) {
      if (!has_rows(i)) continue;
      const std::byte* slot = ring.await(SoloGroup{}, kWriter, i);
      for (std::size_t at = 0; at < kChunkBytes; ++at) {
        if (slot[at] != std::byte{coded(op, i)}) ++num_wrong_;
      }
      ring.release(SoloGroup{}, kWriter, i);
    }
  }

  std::vector<bool> has_rows_;
  ControlWindow window_;
  std::uint64_t push_counter_ = 0;
  std::uint64_t pull_counter_ = 0;
  std::atomic<int> num_wrong_{0};
};

std::vector<bool> random_chunks(Random& random, int percent_with_rows) {
  std::vector<bool> has_rows(static_cast<std::size_t>(uniform(random, 1, 60)));
  for (std::size_t i = 0; i < has_rows.size(); ++i) has_rows[i] = chance(random, percent_with_rows);
  return has_rows;
}

TEST(SlotRingStream, RowsArriveThroughAnyNumberOfSlots) {
  Random random(11);
  for (int round = 0; round < scaled_rounds(12, 500); ++round) {
    const int num_slots = round % 3 == 0 ? 1 : 1 + round % 5;
    Stream stream(num_slots, random_chunks(random, round % 4 == 0 ? 15 : 80));
    for (const std::uint64_t epoch : {1, 2, 3}) stream.run(epoch, 1 + round % 3);
    ASSERT_EQ(stream.num_wrong(), 0) << "round " << round << ", slots " << num_slots;
  }
}

TEST(SlotRingStream, RowsArriveAcrossTheWrapOfTheTags) {
  Stream stream(1, std::vector<bool>(20, true));
  for (const std::uint64_t epoch : {0xFFFFFFFEU, 0xFFFFFFFFU}) stream.run(epoch, 2);
  for (const std::uint64_t epoch : {0U, 1U}) stream.run((std::uint64_t{1} << 32) + epoch, 2);
  EXPECT_EQ(stream.num_wrong(), 0);
}

}  // namespace
}  // namespace ep::test
