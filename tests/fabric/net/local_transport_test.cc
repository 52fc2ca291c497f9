// SPDX-License-Identifier: Apache-2.0
// What a transport in memory promises.
#include "fabric/net/local_transport.h"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace ep::fabric {
namespace {

using Kind = NetEvent::Kind;

/// Two ranks with a window each.
class LocalTransportTest : public testing::Test {
 protected:
  void SetUp() override {
    TransportTraits traits;
    traits.max_outstanding = 4;
    traits.max_write_bytes = 64;
    auto made = make_local_transports(2, traits);
    ASSERT_TRUE(made.ok());
    ranks_ = std::move(*made);
    for (std::size_t i = 0; i < 2; ++i) ASSERT_TRUE(ranks_[i]->add_window(memory_[i]).ok());
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(at(i).set_peer_window(1 - i, 0, at(1 - i).describe_window(0)).ok());
    }
  }

  Transport& at(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  std::vector<NetEvent> poll(int rank) {
    std::array<NetEvent, 8> events{};
    const int count = at(rank).poll(0, events);
    return {events.begin(), events.begin() + count};
  }

  std::array<std::array<std::byte, 128>, 2> memory_{};
  std::vector<std::unique_ptr<Transport>> ranks_;
};

TEST_F(LocalTransportTest, ReadsTheSourceWhenThePeerPolls) {
  memory_[0][3] = std::byte{1};
  ASSERT_EQ(at(0).write({.peer = 1,
                         .src = {.offset = 3},
                         .dst = {.offset = 5},
                         .bytes = 1,
                         .immediate = 99,
                         .cookie = 7}),
            Posted::kYes);
  memory_[0][3] = std::byte{2};
  EXPECT_TRUE(poll(0).empty());
  const auto arrivals = poll(1);
  ASSERT_EQ(arrivals.size(), 1U);
  EXPECT_EQ(arrivals[0].kind, Kind::kArrival);
  EXPECT_EQ(arrivals[0].peer, 0);
  EXPECT_EQ(arrivals[0].immediate, 99U);
  EXPECT_EQ(memory_[1][5], std::byte{2});
  const auto completions = poll(0);
  ASSERT_EQ(completions.size(), 1U);
  EXPECT_EQ(completions[0].kind, Kind::kSourceFree);
  EXPECT_EQ(completions[0].cookie, 7U);
}

TEST_F(LocalTransportTest, WritesWithoutAnImmediateAreSilent) {
  ASSERT_EQ(at(0).write({.peer = 1, .bytes = 8}), Posted::kYes);
  EXPECT_TRUE(poll(1).empty());
  EXPECT_EQ(poll(0).size(), 1U);
}

TEST_F(LocalTransportTest, ReadsWhenThePeerPolls) {
  memory_[1][0] = std::byte{5};
  ASSERT_EQ(at(0).read({.peer = 1, .dst = {.offset = 9}, .bytes = 1, .cookie = 3}), Posted::kYes);
  EXPECT_EQ(memory_[0][9], std::byte{0});
  EXPECT_TRUE(poll(1).empty());
  const auto events = poll(0);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, Kind::kReadDone);
  EXPECT_EQ(memory_[0][9], std::byte{5});
}

TEST_F(LocalTransportTest, RefusesPlacesOutsideTheirWindows) {
  const WriteOp fine{.peer = 1, .bytes = 8, .immediate = 1};
  for (const auto& bad :
       {WindowPlace{.window = 1}, WindowPlace{.window = -1}, WindowPlace{.offset = 121},
        WindowPlace{.offset = -1}, WindowPlace{.offset = INT64_MAX}}) {
    WriteOp op = fine;
    op.src = bad;
    EXPECT_EQ(at(0).write(op), Posted::kFailed);
    op = fine;
    op.dst = bad;
    EXPECT_EQ(at(0).write(op), Posted::kFailed);
    EXPECT_EQ(at(0).failure(0).code(), Errc::kInvalidArgument);
    EXPECT_EQ(at(0).read({.peer = 1, .src = bad, .bytes = 8}), Posted::kFailed);
  }
  EXPECT_EQ(at(0).write({.peer = 1, .bytes = 65, .immediate = 1}), Posted::kFailed);
  EXPECT_EQ(at(0).write({.peer = 1, .bytes = -1, .immediate = 1}), Posted::kFailed);
  EXPECT_EQ(at(0).write({.peer = 1}), Posted::kFailed);
}

TEST_F(LocalTransportTest, IsBusyWithTooManyOperations) {
  const WriteOp op{.peer = 1, .immediate = 1};
  for (int i = 0; i < 4; ++i) ASSERT_EQ(at(0).write(op), Posted::kYes);
  EXPECT_EQ(at(0).write(op), Posted::kBusy);
  EXPECT_EQ(poll(1).size(), 4U);
  EXPECT_EQ(at(0).write(op), Posted::kBusy);
  EXPECT_EQ(poll(0).size(), 4U);
  EXPECT_EQ(at(0).write(op), Posted::kYes);
}

TEST_F(LocalTransportTest, FailsWhatAPeerTakesAlong) {
  ASSERT_EQ(at(0).write({.peer = 1, .bytes = 8, .cookie = 5}), Posted::kYes);
  ASSERT_EQ(at(1).write({.peer = 0, .bytes = 8, .immediate = 1}), Posted::kYes);
  ranks_[1].reset();
  const auto events = poll(0);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, Kind::kFailure);
  EXPECT_EQ(events[0].peer, 1);
  EXPECT_EQ(events[0].cookie, 5U);
  EXPECT_EQ(events[0].error, ECONNRESET);
  EXPECT_EQ(at(0).write({.peer = 1, .bytes = 8}), Posted::kBusy);
}

TEST_F(LocalTransportTest, RefusesWhatDescribesNoWindow) {
  std::vector<std::byte> description = at(1).describe_window(0);
  EXPECT_EQ(at(0).set_peer_window(0, 0, description).code(), Errc::kFabric);
  description[0] ^= std::byte{1};
  EXPECT_EQ(at(0).set_peer_window(1, 0, description).code(), Errc::kFabric);
  description.pop_back();
  EXPECT_EQ(at(0).set_peer_window(1, 0, description).peer(), 1);
  EXPECT_EQ(at(0).set_peer_window(1, 0, {}).code(), Errc::kFabric);
}

TEST_F(LocalTransportTest, SleepEndsWhenSomethingComes) {
  ASSERT_EQ(at(0).write({.peer = 1, .immediate = 1}), Posted::kYes);
  at(1).sleep(0, std::chrono::hours(1));
  EXPECT_EQ(poll(1).size(), 1U);
  at(0).sleep(0, std::chrono::hours(1));
  EXPECT_EQ(poll(0).size(), 1U);
  at(0).sleep(0, std::chrono::milliseconds(1));
}

TEST(LocalTransport, RefusesUselessTraits) {
  EXPECT_FALSE(make_local_transports(0, {}).ok());
  TransportTraits traits;
  traits.num_contexts = 0;
  EXPECT_FALSE(make_local_transports(2, traits).ok());
  traits.num_contexts = 1;
  traits.max_outstanding = 0;
  EXPECT_EQ(make_local_transports(2, traits).status().code(), Errc::kInvalidArgument);
}

}  // namespace
}  // namespace ep::fabric
