// SPDX-License-Identifier: Apache-2.0
// What signals promise, checked at every instant on a network that delivers in any order.
#include "tests/fabric/net/engine_group.h"
#include "tests/fabric/net/shuffled_transport.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace ep::test {
namespace {

using fabric::ArrivalOrder;
using fabric::NetEngine;
using primitives::SignalStrength;

constexpr int kNumRanks = 3;
constexpr int kNumContexts = 2;
constexpr std::uint64_t kPoison = 0xdeaddeaddeaddead;

/// Each put has words of its own in the window, and each weak signal a slot of its own.
struct SentPut {
  int peer = 0;
  int context = 0;
  std::size_t first_word = 0;
  std::size_t num_words = 0;
  std::uint64_t code = 0;
  primitives::NetSignal signal{};
};

/// Puts of one context to one peer, in order.
struct SentStream {
  std::vector<SentPut> puts;
  std::uint64_t strong_sum = 0;
  std::size_t num_checked = 0;  ///< puts that a strong signal has covered
  std::uint64_t checked_sum = 0;
};

/// Random puts of all ranks to all ranks; after every step, what signals say is compared with what
/// memory holds.
class RandomTraffic {
 public:
  RandomTraffic(EngineGroup& group, std::uint64_t seed) : group_(group), random_(seed) {
    for (int rank = 0; rank < kNumRanks; ++rank) {
      for (std::uint64_t& word : group_.words(rank)) word = 0;
    }
  }

  /// The first thing that was not as promised; empty if all was.
  std::string run(int num_puts) {
    for (int put = 0; put < num_puts && finding_.empty();) {
      if (random_() % 2 == 0) {
        put += send() ? 1 : 0;
      } else {
        drive_some_rank();
      }
      check();
    }
    for (int round = 0; round < kMaxRounds && finding_.empty() && !is_over(); ++round) {
      drive_some_rank();
      check();
    }
    if (finding_.empty() && !is_over()) finding_ = "not over: " + describe();
    return finding_;
  }

 private:
  static constexpr int kMaxRounds = 200'000;
  static constexpr std::uint32_t kStrongSlots = kNumRanks * kNumContexts;

  SentStream& stream(int src, int context, int dst) {
    return streams_[static_cast<std::size_t>((src * kNumContexts + context) * kNumRanks + dst)];
  }
  static std::uint32_t strong_slot(int src, int context) {
    return static_cast<std::uint32_t>(src * kNumContexts + context);
  }
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(random_() % count); }

  bool send() {
    const int src = static_cast<int>(below(kNumRanks));
    SentPut put{.peer = (src + 1 + static_cast<int>(below(kNumRanks - 1))) % kNumRanks,
                .context = static_cast<int>(below(kNumContexts)),
                .first_word = next_word_,
                .num_words = below(4) == 0 ? below(120) : below(6),
                .code = random_() | 1};
    put.signal = pick_signal(src, put.context);
    for (std::size_t i = 0; i < put.num_words; ++i) {
      group_.words(src)[put.first_word + i] = put.code + i;
    }
    const auto offset = static_cast<std::int64_t>(put.first_word * sizeof(std::uint64_t));
    if (!group_.engine(src).try_put(
            put.context, {.peer = put.peer,
                          .dst = {.offset = offset},
                          .src = {.offset = offset},
                          .bytes = static_cast<std::int64_t>(put.num_words * sizeof(std::uint64_t)),
                          .signal = put.signal})) {
      return false;
    }
    next_word_ += put.num_words;
    if (put.signal.strength == SignalStrength::kWeak) ++next_weak_slot_;
    SentStream& sent = stream(src, put.context, put.peer);
    if (put.signal.strength == SignalStrength::kStrong) sent.strong_sum += put.signal.add;
    sent.puts.push_back(put);
    return true;
  }

  primitives::NetSignal pick_signal(int src, int context) {
    const std::uint64_t add = below(2) == 0 ? 1 : 1 + below(1000);
    switch (below(3)) {
      case 0:
        return {.strength = SignalStrength::kWeak, .slot = next_weak_slot_, .add = add};
      case 1:
        return {.strength = SignalStrength::kStrong, .slot = strong_slot(src, context), .add = add};
      default:
        return {};
    }
  }

  void drive_some_rank() {
    const int rank = static_cast<int>(below(kNumRanks));
    const int context = static_cast<int>(below(kNumContexts));
    group_.engine(rank).progress(context);
    if (below(8) == 0 && group_.engine(rank).is_flushed(context)) poison_sources(rank, context);
    if (group_.engine(rank).has_failed()) {
      finding_ = group_.engine(rank).failure().to_string();
    }
  }

  /// After is_flushed nobody reads them.
  void poison_sources(int src, int context) {
    for (int dst = 0; dst < kNumRanks; ++dst) {
      for (const SentPut& put : stream(src, context, dst).puts) {
        for (std::size_t i = 0; i < put.num_words; ++i) {
          group_.words(src)[put.first_word + i] = kPoison;
        }
      }
    }
  }

  void check() {
    for (int src = 0; src < kNumRanks; ++src) {
      for (int context = 0; context < kNumContexts; ++context) {
        for (int dst = 0; dst < kNumRanks; ++dst) check_stream(src, context, dst);
      }
    }
  }

  void check_stream(int src, int context, int dst) {
    SentStream& sent = stream(src, context, dst);
    NetEngine& engine = group_.engine(dst);
    const std::uint64_t seen = engine.signal_value(strong_slot(src, context));
    while (sent.checked_sum < seen && sent.num_checked < sent.puts.size()) {
      const SentPut& put = sent.puts[sent.num_checked++];
      expect_landed(put, dst, "a strong signal");
      if (put.signal.strength == SignalStrength::kStrong) sent.checked_sum += put.signal.add;
      if (put.signal.strength == SignalStrength::kWeak &&
          engine.signal_value(put.signal.slot) != put.signal.add) {
        finding_ = "a strong signal came before an earlier weak one";
      }
    }
    if (sent.checked_sum != seen) finding_ = "a strong signal has a value that nobody sent";
    for (const SentPut& put : sent.puts) {
      if (put.signal.strength != SignalStrength::kWeak) continue;
      const std::uint64_t value = engine.signal_value(put.signal.slot);
      if (value == put.signal.add) expect_landed(put, dst, "a weak signal");
      if (value != 0 && value != put.signal.add) finding_ = "a weak signal has another value";
    }
  }

  void expect_landed(const SentPut& put, int dst, const char* what) {
    for (std::size_t i = 0; i < put.num_words; ++i) {
      if (group_.words(dst)[put.first_word + i] != put.code + i) {
        finding_ = std::string(what) + " was seen, but not word " + std::to_string(i) +
                   " of a put that it covers";
      }
    }
  }

  bool is_over() {
    for (int src = 0; src < kNumRanks; ++src) {
      for (int context = 0; context < kNumContexts; ++context) {
        if (!group_.engine(src).is_flushed(context)) return false;
        for (int dst = 0; dst < kNumRanks; ++dst) {
          if (stream(src, context, dst).checked_sum != stream(src, context, dst).strong_sum) {
            return false;
          }
        }
      }
    }
    return true;
  }

  std::string describe() {
    std::string text;
    for (int rank = 0; rank < kNumRanks; ++rank) {
      for (int peer = 0; peer < kNumRanks; ++peer) {
        if (peer != rank) text += group_.engine(rank).describe_peer(peer) + "\n";
      }
    }
    return text;
  }

  EngineGroup& group_;
  std::mt19937_64 random_;
  std::vector<SentStream> streams_{kNumRanks * kNumContexts * kNumRanks};
  std::size_t next_word_ = 0;
  std::uint32_t next_weak_slot_ = kStrongSlots;
  std::string finding_;
};

EngineGroupOptions options_of(ArrivalOrder order, std::uint64_t seed, bool is_shuffled) {
  constexpr std::uint64_t kFirsts[] = {0, 250, 16'380, 0xfffffffbU,
                                       std::numeric_limits<std::uint64_t>::max() - 4};
  constexpr int kRings[] = {2, 4, 16, 256};
  EngineGroupOptions options;
  options.num_ranks = kNumRanks;
  options.window_bytes = std::int64_t{1} << 18;
  options.traits.order = order;
  options.traits.num_contexts = kNumContexts;
  options.traits.max_write_bytes = 288;
  options.traits.max_outstanding = seed % 3 == 0 ? 4 : 64;
  options.config.num_contexts = kNumContexts;
  options.config.num_signals = 1024;
  options.config.first_number = kFirsts[seed % 5];
  options.config.epoch_ring = kRings[seed % 4];
  options.config.part_ring = kRings[(seed / 2) % 4];
  options.config.window_ops = kRings[(seed / 3) % 3];
  options.config.arrival_window = seed % 2 == 0 ? 4 : 64;
  options.config.window_bytes = 1024;
  if (is_shuffled) {
    options.wrap = [seed](std::unique_ptr<fabric::Transport> inner) {
      const auto own_seed = seed * kNumRanks + static_cast<std::uint64_t>(inner->rank());
      return std::make_unique<ShuffledTransport>(std::move(inner), own_seed);
    };
  }
  return options;
}

constexpr int kNumPuts = 400;

std::string run_seed(ArrivalOrder order, std::uint64_t seed, bool is_shuffled) {
  EngineGroup group(options_of(order, seed, is_shuffled));
  if (!group.is_fine()) return group.statuses()[0].to_string();
  return RandomTraffic(group, seed).run(kNumPuts);
}

TEST(SignalOrder, HoldsOnAnUnorderedNetwork) {
  const int num_seeds = scaled_rounds(60, 2'000);
  for (int seed = 0; seed < num_seeds; ++seed) {
    ASSERT_EQ(run_seed(ArrivalOrder::kUnordered, static_cast<std::uint64_t>(seed), true), "")
        << "seed " << seed;
  }
}

TEST(SignalOrder, HoldsOnAnOrderedNetwork) {
  const int num_seeds = scaled_rounds(60, 2'000);
  for (int seed = 0; seed < num_seeds; ++seed) {
    ASSERT_EQ(run_seed(ArrivalOrder::kOrdered, static_cast<std::uint64_t>(seed), false), "")
        << "seed " << seed;
  }
}

TEST(SignalOrder, IsMissedWhereANetworkOnlyClaimsToBeOrdered) {
  int num_missed = 0;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    num_missed += run_seed(ArrivalOrder::kOrdered, seed, true).empty() ? 0 : 1;
  }
  EXPECT_GT(num_missed, 5);
}

}  // namespace
}  // namespace ep::test
