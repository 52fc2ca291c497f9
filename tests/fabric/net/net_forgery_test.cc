// SPDX-License-Identifier: Apache-2.0
// Whatever a peer sends: an error that names it, never a wrong access.
#include "fabric/net/immediate.h"
#include "fabric/net/scratch_layout.h"
#include "fabric/net/wire_cells.h"
#include "tests/fabric/net/engine_group.h"
#include "tests/fabric/net/forging_transport.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace ep::test {
namespace {

using fabric::ArrivalOrder;
using fabric::Control;
using fabric::ControlKind;
using fabric::Immediate;
using fabric::ImmediateKind;
using fabric::PeerState;
using fabric::SignalRecord;

constexpr int kVictim = 0;
constexpr int kForger = 1;
constexpr std::byte kCanary{0x5a};

/// Rank 0 hears what the test forges in the name of rank 1; rank 2 is honest.
class Forgery {
 public:
  explicit Forgery(ArrivalOrder order) : group_(options_of(order)) {
    EXPECT_TRUE(group_.is_fine());
    for (std::byte& byte : group_.memory(kVictim)) byte = kCanary;
    learn_incarnation();
  }

  EngineGroup& group() { return group_; }
  fabric::NetEngine& victim() { return group_.engine(kVictim); }
  Forge& forge() { return forge_; }
  std::uint64_t incarnation() const { return incarnation_; }
  fabric::ScratchLayout layout() { return {victim().config(), victim().num_ranks()}; }

  template <class Cell>
  void store(std::int64_t offset, const Cell& cell) {
    std::memcpy(forge_.scratch.data() + offset, &cell, sizeof(Cell));
  }
  /// A record of the forger, at the place of its number.
  void store_record(SignalRecord record) {
    record.incarnation = incarnation_;
    store(layout().record_in(0, kForger, record.number), record);
  }
  void arrive(ImmediateKind kind, std::uint64_t epoch, std::uint64_t payload) {
    forge_.arrive(kForger, encode(Immediate{.kind = kind,
                                            .epoch = fabric::epoch_bits(epoch),
                                            .payload = fabric::payload_bits(payload)}));
  }
  void arrive(ControlKind kind, std::uint32_t argument) {
    arrive(ImmediateKind::kControl, 0, encode(Control{kind, argument}));
  }
  void drive() {
    while (!forge_.events.empty()) victim().progress(0);
  }
  bool is_memory_whole() {
    for (const std::byte byte : group_.memory(kVictim)) {
      if (byte != kCanary) return false;
    }
    return true;
  }

 private:
  EngineGroupOptions options_of(ArrivalOrder order) {
    EngineGroupOptions options;
    options.num_ranks = 3;
    options.window_bytes = 4096;
    options.traits.order = order;
    options.config.num_signals = 16;
    options.config.epoch_ring = 16;
    options.config.part_ring = 16;
    options.config.window_ops = 4;
    options.config.arrival_window = 32;
    options.wrap =
        [this](std::unique_ptr<fabric::Transport> inner) -> std::unique_ptr<fabric::Transport> {
      if (inner->rank() != kVictim) return inner;
      return std::make_unique<ForgingTransport>(std::move(inner), forge_);
    };
    return options;
  }

  /// From a message that rank 1 really sent.
  void learn_incarnation() {
    EXPECT_TRUE(group_.engine(kForger).broadcast({}).ok());
    EXPECT_TRUE(group_.drive_until([&] { return !group_.engine(kForger).has_open_messages(); }));
    std::memcpy(&incarnation_, forge_.scratch.data() + layout().message_in(kForger, 0),
                sizeof(incarnation_));
    EXPECT_NE(incarnation_, 0U);
  }

  Forge forge_;
  EngineGroup group_;
  std::uint64_t incarnation_ = 0;
};

struct Case {
  const char* name;
  std::function<void(Forgery&)> forge;
};

const std::vector<Case>& unordered_cases() {
  static const std::vector<Case> kCases = {
      {"kind zero", [](Forgery& it) { it.forge().arrive(kForger, 0); }},
      {"another context",
       [](Forgery& it) {
         it.forge().arrive(kForger, encode(Immediate{.kind = ImmediateKind::kPut, .context = 5}));
       }},
      {"an epoch too far", [](Forgery& it) { it.arrive(ImmediateKind::kPut, 9, 0); }},
      {"an epoch that is over", [](Forgery& it) { it.arrive(ImmediateKind::kPut, 255, 0); }},
      {"no such slot", [](Forgery& it) { it.arrive(ImmediateKind::kPutSignal, 0, 16); }},
      {"a weak record too far", [](Forgery& it) { it.arrive(ImmediateKind::kPutPart, 0, 8); }},
      {"a record of another number",
       [](Forgery& it) {
         it.store_record({.number = 16, .slot = 1});
         it.arrive(ImmediateKind::kRecord, 0, 0);
       }},
      {"a record for no slot",
       [](Forgery& it) {
         it.store_record({.number = 0, .slot = 16});
         it.arrive(ImmediateKind::kRecord, 0, 0);
       }},
      {"a flush that wants no answer",
       [](Forgery& it) {
         it.store_record({.number = 0, .slot = fabric::kNoSlot});
         it.arrive(ImmediateKind::kRecord, 0, 0);
       }},
      {"epoch and number that differ",
       [](Forgery& it) {
         it.store_record({.number = 1, .slot = 1});
         it.arrive(ImmediateKind::kRecord, 0, 1);
       }},
      {"a record twice",
       [](Forgery& it) {
         it.store_record({.number = 1, .num_writes = 5, .slot = 1});
         it.arrive(ImmediateKind::kRecord, 1, 1);
         it.arrive(ImmediateKind::kRecord, 1, 1);
       }},
      {"more writes than announced",
       [](Forgery& it) {
         it.store_record({.number = 1, .num_writes = 1, .slot = 1});
         it.arrive(ImmediateKind::kRecord, 1, 1);
         it.arrive(ImmediateKind::kPut, 1, 0);
         it.arrive(ImmediateKind::kPut, 1, 0);
       }},
      {"more arrivals than credits",
       [](Forgery& it) {
         for (int i = 0; i < 200; ++i) it.arrive(ImmediateKind::kPut, 0, 0);
       }},
  };
  return kCases;
}

const std::vector<Case>& common_cases() {
  static const std::vector<Case> kCases = {
      {"no such acknowledgement", [](Forgery& it) { it.arrive(ImmediateKind::kAck, 0, 3); }},
      {"an acknowledgement of nothing",
       [](Forgery& it) {
         it.store(it.layout().ack_in(0, kForger, 0),
                  fabric::AckCell{.incarnation = it.incarnation(), .arrivals = 1});
         it.arrive(ImmediateKind::kAck, 0, 0);
       }},
      {"control of no kind", [](Forgery& it) { it.arrive(ImmediateKind::kControl, 0, 0); }},
      {"a second greeting", [](Forgery& it) { it.arrive(ControlKind::kHello, 1); }},
      {"an answer to no ping", [](Forgery& it) { it.arrive(ControlKind::kPong, 0); }},
      {"an unsent acknowledgement that was seen",
       [](Forgery& it) { it.arrive(ControlKind::kAckSeen, 1); }},
      {"a cell of no acknowledgement", [](Forgery& it) { it.arrive(ControlKind::kAckSeen, 1023); }},
      {"no such message", [](Forgery& it) { it.arrive(ControlKind::kMessage, 900); }},
      {"an unsent message that was seen",
       [](Forgery& it) { it.arrive(ControlKind::kMessageSeen, 2); }},
      {"a message that is too long",
       [](Forgery& it) {
         it.store(it.layout().message_in(kForger, 1),
                  fabric::MessageCell{.incarnation = it.incarnation(), .num_bytes = 257});
         it.arrive(ControlKind::kMessage, 1);
       }},
  };
  return kCases;
}

void expect_refused(ArrivalOrder order, const Case& it) {
  Forgery forgery(order);
  it.forge(forgery);
  forgery.drive();
  EXPECT_EQ(forgery.victim().failure().code(), Errc::kFabric) << it.name;
  EXPECT_EQ(forgery.victim().failure().peer(), kForger) << it.name;
  EXPECT_EQ(forgery.victim().peer_state(kForger), PeerState::kDead) << it.name;
  EXPECT_EQ(forgery.victim().peer_state(2), PeerState::kOk) << it.name;
  EXPECT_TRUE(forgery.is_memory_whole()) << it.name;
}

TEST(Forgery, IsRefusedOnAnUnorderedNetwork) {
  for (const Case& it : unordered_cases()) expect_refused(ArrivalOrder::kUnordered, it);
  for (const Case& it : common_cases()) expect_refused(ArrivalOrder::kUnordered, it);
}

TEST(Forgery, IsRefusedOnAnOrderedNetwork) {
  for (const Case& it : common_cases()) expect_refused(ArrivalOrder::kOrdered, it);
  for (const ImmediateKind kind :
       {ImmediateKind::kPut, ImmediateKind::kPutPart, ImmediateKind::kPartRecord}) {
    expect_refused(ArrivalOrder::kOrdered, {"a kind of unordered networks",
                                            [kind](Forgery& it) { it.arrive(kind, 0, 0); }});
  }
  expect_refused(ArrivalOrder::kOrdered, {"a record out of order", [](Forgery& it) {
                                            it.store_record({.number = 1, .slot = 1});
                                            it.arrive(ImmediateKind::kRecord, 1, 1);
                                          }});
}

TEST(Forgery, OthersGoOn) {
  Forgery forgery(ArrivalOrder::kUnordered);
  forgery.forge().arrive(kForger, 0);
  forgery.drive();
  ASSERT_TRUE(forgery.group().engine(2).try_signal(
      0, kVictim, {.strength = primitives::SignalStrength::kStrong, .slot = 3}));
  EXPECT_TRUE(forgery.group().drive_until([&] { return forgery.victim().signal_value(3) == 1; }));
  EXPECT_FALSE(forgery.victim().try_signal(
      0, kForger, {.strength = primitives::SignalStrength::kStrong, .slot = 3}));
}

TEST(Forgery, StrangePeersAndCompletionsAreErrors) {
  for (const int peer : {-1, 3, kVictim, 1 << 30}) {
    Forgery forgery(ArrivalOrder::kUnordered);
    forgery.forge().arrive(peer, encode(Immediate{.kind = ImmediateKind::kPut}));
    forgery.drive();
    EXPECT_EQ(forgery.victim().failure().code(), Errc::kFabric) << peer;
  }
  for (const std::uint64_t cookie :
       {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{2} << 56, (std::uint64_t{3} << 56) + 7,
        (std::uint64_t{5} << 56) + 9, (std::uint64_t{6} << 56) + 1}) {
    Forgery forgery(ArrivalOrder::kUnordered);
    forgery.forge().events.push_back(
        {.kind = fabric::NetEvent::Kind::kSourceFree, .peer = kForger, .cookie = cookie});
    forgery.drive();
    EXPECT_EQ(forgery.victim().failure().code(), Errc::kInternal) << cookie;
  }
}

TEST(Forgery, TrafficOfAnEarlierLifeIsDropped) {
  Forgery forgery(ArrivalOrder::kUnordered);
  forgery.store(forgery.layout().record_in(0, kForger, 0),
                SignalRecord{.incarnation = forgery.incarnation() + 1, .slot = 2});
  forgery.arrive(ImmediateKind::kRecord, 0, 0);
  forgery.store(forgery.layout().part_in(0, kForger, 0), SignalRecord{.incarnation = 0, .slot = 2});
  forgery.arrive(ImmediateKind::kPartRecord, 0, 0);
  forgery.arrive(ImmediateKind::kAck, 0, 1);
  forgery.drive();
  EXPECT_FALSE(forgery.victim().has_failed());
  EXPECT_EQ(forgery.victim().counters(0, kForger).stale, 3U);
  EXPECT_EQ(forgery.victim().signal_value(2), 0U);
}

/// Random immediates, mostly of plausible kinds, over cells that hold random bytes or plausible
/// records.
void forge_randomly(Forgery& forgery, std::mt19937_64& random) {
  constexpr int kNumArrivals = 24;
  for (std::size_t i = 0; i + 8 <= forgery.forge().scratch.size(); i += 64) {
    const std::uint64_t first = random() % 4 == 0 ? random() : forgery.incarnation();
    std::memcpy(forgery.forge().scratch.data() + i, &first, sizeof(first));
    for (std::size_t word = 1; word < 5; ++word) {
      const std::uint64_t value = random() % 2 == 0 ? random() % 8 : random();
      std::memcpy(forgery.forge().scratch.data() + i + word * 8, &value, sizeof(value));
    }
  }
  for (int i = 0; i < kNumArrivals; ++i) {
    std::uint32_t bits = static_cast<std::uint32_t>(random());
    if (random() % 8 != 0) {
      bits = encode(
          Immediate{.kind = static_cast<ImmediateKind>(1 + random() % 7),
                    .epoch = static_cast<std::uint8_t>(random() % 10),
                    .payload = fabric::payload_bits(random() % 2 == 0 ? random() % 20 : random())});
    }
    forgery.forge().arrive(kForger, bits);
  }
  forgery.drive();
  for (int i = 0; i < 4; ++i) forgery.victim().progress(0);
}

TEST(Forgery, RandomBytesNeverHurt) {
  const int num_rounds = scaled_rounds(300, 20'000);
  for (int round = 0; round < num_rounds; ++round) {
    std::mt19937_64 random(static_cast<std::uint64_t>(round));
    Forgery forgery(round % 2 == 0 ? ArrivalOrder::kUnordered : ArrivalOrder::kOrdered);
    forge_randomly(forgery, random);
    const Status failure = forgery.victim().failure();
    EXPECT_TRUE(failure.ok() || failure.peer() == kForger) << failure.to_string();
    EXPECT_TRUE(forgery.is_memory_whole()) << "round " << round;
    EXPECT_EQ(forgery.victim().peer_state(2), PeerState::kOk);
  }
}

}  // namespace
}  // namespace ep::test
