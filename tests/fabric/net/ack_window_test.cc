// SPDX-License-Identifier: Apache-2.0
// Cursors near the ends of their range, and the epoch protocol under random delivery.
#include "fabric/net/ack_window.h"

#include "fabric/net/signal_receiver.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

namespace ep::fabric {
namespace {

constexpr std::uint64_t kFirsts[] = {0, 253, 16381, 0xfffffffdU,
                                     std::numeric_limits<std::uint64_t>::max() - 2};

TEST(AckWindow, GivesOutNoMoreThanItsLimit) {
  for (const std::uint64_t first : kFirsts) {
    AckWindow window(first, 3);
    for (std::uint64_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(window.has_room());
      EXPECT_EQ(window.take(), first + i);
    }
    EXPECT_FALSE(window.has_room());
    EXPECT_EQ(window.acknowledge(first + 1), AckVerdict::kFine);
    EXPECT_TRUE(window.has_room());
    EXPECT_EQ(window.num_open(), 2U);
  }
}

TEST(AckWindow, TellsOldCursorsFromForgedOnes) {
  for (const std::uint64_t first : kFirsts) {
    AckWindow window(first, 8);
    for (int i = 0; i < 6; ++i) window.take();
    EXPECT_EQ(window.acknowledge(first + 4), AckVerdict::kFine);
    EXPECT_EQ(window.acknowledge(first + 4), AckVerdict::kFine);
    EXPECT_EQ(window.acknowledge(first + 2), AckVerdict::kOld);
    EXPECT_EQ(window.acknowledge(first + 7), AckVerdict::kForged);
    EXPECT_EQ(window.acked(), first + 4);
    EXPECT_TRUE(window.has_settled(first + 4));
    EXPECT_FALSE(window.has_settled(first + 5));
  }
}

TEST(WideNumber, FindsTheOpenNumberOfLowBits) {
  for (const std::uint64_t from : kFirsts) {
    for (std::uint64_t distance = 0; distance < 16; ++distance) {
      const WideNumber wide = widen((from + distance) % 256, 256, from, 10);
      EXPECT_EQ(wide.is_open, distance < 10);
      EXPECT_EQ(wide.number, from + distance);
    }
  }
}

TEST(EpochReceiver, RefusesWhatNoSenderDoes) {
  std::vector<OpenSignal> cells(4);
  EpochReceiver epochs(254, 2, cells);
  EXPECT_TRUE(epochs.add_write(epoch_bits(254)));
  EXPECT_TRUE(epochs.add_write(epoch_bits(256)));
  EXPECT_FALSE(epochs.add_write(epoch_bits(257)));
  EXPECT_FALSE(epochs.add_write(epoch_bits(253)));
  EXPECT_FALSE(epochs.add_record({.number = 256, .num_writes = 9}));
  EXPECT_FALSE(epochs.add_record({.number = 254, .num_writes = 0}));
}

TEST(EpochReceiver, RefusesASecondRecordAndAWriteTooMany) {
  std::vector<OpenSignal> cells(4);
  EpochReceiver epochs(0, 2, cells);
  EXPECT_TRUE(epochs.add_record({.number = 1, .num_writes = 1}));
  EXPECT_FALSE(epochs.add_record({.number = 1, .num_writes = 1}));
  EXPECT_TRUE(epochs.add_write(1));
  EXPECT_FALSE(epochs.add_write(1));
}

TEST(PartReceiver, AppliesAtOnceAndAdvancesInOrder) {
  std::vector<OpenSignal> cells(4);
  PartReceiver parts(3, 2, cells);
  std::vector<std::uint32_t> applied;
  const auto apply = [&applied](std::uint32_t slot, std::uint64_t) { applied.push_back(slot); };
  EXPECT_TRUE(parts.add_record({.number = 4, .num_writes = 1, .slot = 40}, apply));
  EXPECT_TRUE(parts.add_write(4, apply));
  EXPECT_EQ(applied, std::vector<std::uint32_t>({40}));
  EXPECT_EQ(parts.head(), 3U);
  EXPECT_FALSE(parts.add_write(4, apply));
  EXPECT_TRUE(parts.add_record({.number = 3, .num_writes = 0, .slot = 30}, apply));
  EXPECT_EQ(parts.head(), 5U);
  EXPECT_FALSE(parts.add_write(7, apply));
  EXPECT_EQ(applied, std::vector<std::uint32_t>({40, 30}));
}

/// What a simulated protocol does otherwise than it should.
struct Variant {
  bool has_truncated_cursor = false;
  bool has_full_window = false;
};

/// One stream whose messages arrive in any order.
class Simulation {
 public:
  Simulation(std::uint64_t seed, std::uint64_t ring, const Variant& variant)
      : random_(seed),
        variant_(variant),
        window_size_(variant.has_full_window ? ring : ring / 2),
        first_(kFirsts[seed % std::size(kFirsts)]),
        window_(first_, window_size_),
        cells_(ring),
        receiver_(first_, window_size_, cells_) {}

  /// Whether all went as the protocol promises.
  bool run(int num_ops) {
    for (int op = 0; op < num_ops && is_fine_;) {
      if (random_() % 2 == 0) {
        op += send() ? 1 : 0;
      } else {
        deliver();
      }
    }
    while (!flying_.empty() && is_fine_) deliver();
    return is_fine_ && num_landed_ == num_puts_;
  }

 private:
  enum class Kind : std::uint8_t { kPut, kRecord, kAck };
  struct Message {
    Kind kind;
    std::uint64_t number;
    std::uint64_t num_writes = 0;
  };

  void expect(bool condition) { is_fine_ = is_fine_ && condition; }

  bool send() {
    if (random_() % 3 != 0) {
      flying_.push_back({Kind::kPut, window_.next()});
      ++writes_;
      ++num_puts_;
      return true;
    }
    if (!window_.has_room()) return false;
    flying_.push_back({Kind::kRecord, window_.take(), std::exchange(writes_, 0)});
    puts_before_.push_back(num_puts_);
    return true;
  }

  void deliver() {
    if (flying_.empty()) return;
    std::swap(flying_[random_() % flying_.size()], flying_.back());
    const Message message = flying_.back();
    flying_.pop_back();
    switch (message.kind) {
      case Kind::kPut:
        // The truth, which no message carries: how many of its epoch and those before are here.
        land(message.number);
        expect(receiver_.add_write(epoch_bits(message.number)));
        break;
      case Kind::kRecord:
        expect(receiver_.add_record({.number = message.number, .num_writes = message.num_writes}));
        break;
      case Kind::kAck:
        return take_ack(message.number);
    }
    apply();
  }

  void land(std::uint64_t epoch) {
    const std::size_t index = static_cast<std::size_t>(epoch - first_);
    if (landed_.size() <= index) landed_.resize(index + 1);
    ++landed_[index];
    ++num_landed_;
  }

  void apply() {
    const std::uint64_t before = receiver_.head();
    receiver_.apply_complete([this](std::uint32_t, std::uint64_t) {
      landed_before_ += num_applied_ < landed_.size() ? landed_[num_applied_] : 0;
      expect(num_applied_ < puts_before_.size() && landed_before_ == puts_before_[num_applied_]);
      ++num_applied_;
    });
    if (receiver_.head() != before) flying_.push_back({Kind::kAck, cursor()});
  }

  std::uint64_t cursor() const {
    return variant_.has_truncated_cursor ? receiver_.head() % (2 * window_size_) : receiver_.head();
  }

  void take_ack(std::uint64_t cursor) {
    if (variant_.has_truncated_cursor) {
      const std::uint64_t advance = (cursor - window_.acked()) % (2 * window_size_);
      if (advance > window_size_) return;
      cursor = window_.acked() + advance;
    }
    expect(window_.acknowledge(cursor) != AckVerdict::kForged);
    expect(static_cast<std::int64_t>(receiver_.head() - window_.acked()) >= 0);
  }

  std::mt19937_64 random_;
  const Variant variant_;
  const std::uint64_t window_size_;
  const std::uint64_t first_;
  AckWindow window_;
  std::vector<OpenSignal> cells_;
  EpochReceiver receiver_;
  std::vector<Message> flying_;
  std::uint64_t writes_ = 0;
  std::uint64_t num_puts_ = 0;
  std::uint64_t num_landed_ = 0;
  std::vector<std::uint64_t> puts_before_;  ///< by strong signal
  std::vector<std::uint64_t> landed_;       ///< by epoch
  std::uint64_t landed_before_ = 0;
  std::size_t num_applied_ = 0;
  bool is_fine_ = true;
};

constexpr int kNumOps = 400;

int count_violations(int num_seeds, std::uint64_t max_ring, const Variant& variant) {
  int num_violations = 0;
  for (int seed = 0; seed < num_seeds; ++seed) {
    const auto exponent = static_cast<std::uint64_t>(seed) % std::uint64_t{8} + 1;
    const std::uint64_t ring = std::min(std::uint64_t{1} << exponent, max_ring);
    Simulation simulation(static_cast<std::uint64_t>(seed), ring, variant);
    num_violations += simulation.run(kNumOps) ? 0 : 1;
  }
  return num_violations;
}

TEST(EpochProtocol, HoldsUnderRandomDelivery) {
  EXPECT_EQ(count_violations(test::scaled_rounds(3'000, 30'000), 256, {}), 0);
}

TEST(EpochProtocol, IsBrokenByATruncatedCursor) {
  EXPECT_GT(count_violations(400, 8, {.has_truncated_cursor = true}), 0);
}

TEST(EpochProtocol, IsBrokenByAWindowAsLargeAsTheRing) {
  EXPECT_GT(count_violations(400, 8, {.has_full_window = true}), 0);
}

}  // namespace
}  // namespace ep::fabric
