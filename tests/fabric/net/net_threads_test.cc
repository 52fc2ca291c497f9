// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads, with several lanes each that share contexts.
#include "fabric/net/host_net.h"
#include "fabric/net/local_transport.h"
#include "fabric/net/net_engine.h"
#include "primitives/relax.h"
#include "tests/fabric/net/shuffled_transport.h"
#include "tests/support/ranks.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace ep::test {
namespace {

using fabric::ArrivalOrder;
using fabric::HostNet;
using fabric::NetEngine;
using primitives::NetPut;
using primitives::SignalStrength;

constexpr int kNumRanks = 3;
constexpr int kNumLanes = 2;
constexpr int kNumContexts = 2;
constexpr std::int64_t kRowWords = 100;
constexpr std::int64_t kRowBytes = kRowWords * sizeof(std::uint64_t);

/// Rows that lanes exchange: for each (peer, lane) an outgoing and an incoming one.
struct Rows {
  std::vector<std::uint64_t> words =
      std::vector<std::uint64_t>(2 * kNumRanks * kNumLanes * kRowWords);

  static std::int64_t out_offset(int peer, int lane) {
    return (peer * kNumLanes + lane) * kRowBytes;
  }
  static std::int64_t in_offset(int peer, int lane) {
    return (kNumRanks * kNumLanes + peer * kNumLanes + lane) * kRowBytes;
  }
  std::uint64_t* at(std::int64_t offset) {
    return words.data() + offset / static_cast<std::int64_t>(sizeof(std::uint64_t));
  }
  std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(words)); }
};

std::uint32_t slot_of(int src, int lane) {
  return static_cast<std::uint32_t>(src * kNumLanes + lane);
}
std::uint64_t code_of(int src, int lane, int round) {
  return static_cast<std::uint64_t>((src * kNumLanes + lane) * 1'000'000 + round);
}

/// One lane of a rank: in each round a row to every peer, and one from it.
template <class Net>
class Lane {
 public:
  Lane(Net net, int rank, int lane, Rows& rows)
      : net_(net), rank_(rank), lane_(lane), rows_(rows) {}

  /// The first thing that went wrong.
  std::string run(int num_rounds) {
    for (int round = 1; round <= num_rounds && finding_.empty(); ++round) {
      for_each_peer([&](int peer) { send(peer, round); });
      for_each_peer([&](int peer) { receive(peer, round); });
      for_each_peer([&](int peer) { await_read(peer, round); });
    }
    return finding_;
  }

 private:
  static constexpr auto kPatience = std::chrono::milliseconds(30'000 * kSanitizerSlowdown);

  int context() const { return lane_ % kNumContexts; }

  template <class Visit>
  void for_each_peer(Visit visit) {
    for (int hop = 1; hop < kNumRanks; ++hop) visit((rank_ + hop) % kNumRanks);
  }

  template <class IsDone>
  void wait(IsDone is_done) {
    const auto deadline = base::Deadline::after(kPatience);
    for (int polls = 1; !is_done(); ++polls) {
      if (deadline.expired()) {
        finding_ = "lane " + std::to_string(lane_) + " waits in vain";
        return;
      }
      net_.progress(context());
      primitives::relax(polls);
    }
  }

  /// The source of the round before may be written again once it is flushed.
  void send(int peer, int round) {
    wait([&] { return net_.is_flushed(context()); });
    std::uint64_t* row = rows_.at(Rows::out_offset(peer, lane_));
    for (std::int64_t i = 0; i < kRowWords; ++i) row[i] = code_of(rank_, lane_, round);
    const NetPut put{
        .peer = peer,
        .dst_offset = Rows::in_offset(rank_, lane_),
        .src_offset = Rows::out_offset(peer, lane_),
        .bytes = kRowBytes,
        .signal = {.strength = round % 2 == 0 ? SignalStrength::kStrong : SignalStrength::kWeak,
                   .slot = slot_of(rank_, lane_)}};
    wait([&] { return net_.try_put(context(), put); });
  }

  void receive(int peer, int round) {
    wait([&] {
      return net_.signal_value(slot_of(peer, lane_)) >= static_cast<std::uint64_t>(round);
    });
    const std::uint64_t* row = rows_.at(Rows::in_offset(peer, lane_));
    for (std::int64_t i = 0; i < kRowWords; ++i) {
      if (row[i] != code_of(peer, lane_, round)) {
        finding_ = "round " + std::to_string(round) + ": a wrong word of rank " +
                   std::to_string(peer) + ": " + std::to_string(row[i]);
      }
    }
    const NetPut read{
        .peer = peer,
        .signal = {.strength = SignalStrength::kWeak, .slot = kReadSlots + slot_of(rank_, lane_)}};
    wait([&] { return net_.try_put(context(), read); });
  }

  /// Until the peer has read this lane's row.
  void await_read(int peer, int round) {
    wait([&] {
      return net_.signal_value(kReadSlots + slot_of(peer, lane_)) >=
             static_cast<std::uint64_t>(round);
    });
  }

  static constexpr std::uint32_t kReadSlots = kNumRanks * kNumLanes;

  Net net_;
  const int rank_;
  const int lane_;
  Rows& rows_;
  std::string finding_;
};

template <ArrivalOrder kOrder>
void exchange_rows(RankContext& context,
                   std::unique_ptr<fabric::Transport> transport,
                   int num_rounds) {
  const auto deadline =
      base::Deadline::after(std::chrono::milliseconds(60'000 * kSanitizerSlowdown));
  auto engine = NetEngine::create(context.bootstrap(), std::move(transport),
                                  {.num_contexts = kNumContexts,
                                   .window_ops = 4,
                                   .arrival_window = 8,
                                   .heartbeat = std::chrono::milliseconds(2),
                                   .suspect_after = std::chrono::milliseconds(100'000),
                                   .dead_after = std::chrono::milliseconds(200'000)},
                                  deadline);
  if (!context.expect_ok(engine.status(), "create")) return;
  Rows rows;
  if (!context.expect_ok(
          (*engine)->add_window(context.bootstrap(), rows.bytes(), deadline).status(), "window")) {
    return;
  }
  std::vector<std::string> findings(kNumLanes);
  {
    std::vector<std::jthread> lanes;
    for (int lane = 0; lane < kNumLanes; ++lane) {
      lanes.emplace_back([&, lane] {
        Lane<HostNet<kOrder>> it(HostNet<kOrder>(**engine), context.rank(), lane, rows);
        findings[static_cast<std::size_t>(lane)] = it.run(num_rounds);
      });
    }
  }
  for (const std::string& finding : findings) context.expect_nothing(finding, "rows");
  context.expect_ok((*engine)->failure(), "engine");
  context.expect_ok(context.bootstrap().barrier(std::chrono::seconds(60)), "barrier");
}

template <ArrivalOrder kOrder>
void check_exchange(bool is_shuffled) {
  fabric::TransportTraits traits;
  traits.order = kOrder;
  traits.num_contexts = kNumContexts;
  auto transports = fabric::make_local_transports(kNumRanks, traits);
  ASSERT_TRUE(transports.ok());
  const int num_rounds = scaled_rounds(300, 5'000);
  check_ranks({.num_ranks = kNumRanks}, [&](RankContext& context) {
    std::unique_ptr<fabric::Transport> transport =
        std::move((*transports)[static_cast<std::size_t>(context.rank())]);
    if (is_shuffled) {
      const auto seed = static_cast<std::uint64_t>(context.rank());
      transport = std::make_unique<ShuffledTransport>(std::move(transport), seed);
    }
    exchange_rows<kOrder>(context, std::move(transport), num_rounds);
  });
}

TEST(NetThreads, LanesExchangeRowsOnAnOrderedNetwork) {
  check_exchange<ArrivalOrder::kOrdered>(false);
}

TEST(NetThreads, LanesExchangeRowsOnAnUnorderedNetwork) {
  check_exchange<ArrivalOrder::kUnordered>(true);
}

}  // namespace
}  // namespace ep::test
