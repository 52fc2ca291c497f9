// SPDX-License-Identifier: Apache-2.0
// Tickets: each is taken exactly once, by whichever lane comes.
#include "primitives/ticket.h"

#include "primitives/host_exec.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

namespace ep::test {
namespace {

using primitives::SoloGroup;
using Tickets = primitives::TicketStream<primitives::HostExec>;

TEST(TicketStream, GivesASingleLaneEveryTicketInOrder) {
  std::uint64_t counter = 0;
  Tickets tickets(SoloGroup{}, &counter, 100);
  for (std::int64_t expected = 0; expected < 100; ++expected) {
    ASSERT_EQ(tickets.next(SoloGroup{}), expected);
  }
  EXPECT_EQ(tickets.next(SoloGroup{}), -1);
}

TEST(TicketStream, HasNoneWhereThereIsNoWork) {
  std::uint64_t counter = 0;
  Tickets tickets(SoloGroup{}, &counter, 0);
  EXPECT_EQ(tickets.next(SoloGroup{}), -1);
}

TEST(TicketStream, ClaimsOneTicketAhead) {
  std::uint64_t counter = 0;
  Tickets tickets(SoloGroup{}, &counter, 100);
  EXPECT_EQ(counter, 1U);
  EXPECT_EQ(tickets.next(SoloGroup{}), 0);
  EXPECT_EQ(counter, 2U);
}

TEST(TicketStream, ClaimsNothingMoreOnceAllAreTaken) {
  std::uint64_t counter = 0;
  Tickets tickets(SoloGroup{}, &counter, 1);
  EXPECT_EQ(tickets.next(SoloGroup{}), 0);
  for (int call = 0; call < 5; ++call) EXPECT_EQ(tickets.next(SoloGroup{}), -1);
  EXPECT_EQ(counter, 2U);
}

TEST(TicketStream, LeavesATicketToTheLaneThatClaimedIt) {
  std::uint64_t counter = 0;
  Tickets first(SoloGroup{}, &counter, 3);
  Tickets second(SoloGroup{}, &counter, 3);
  EXPECT_EQ(second.next(SoloGroup{}), 1);
  EXPECT_EQ(second.next(SoloGroup{}), 2);
  EXPECT_EQ(second.next(SoloGroup{}), -1);
  EXPECT_EQ(first.next(SoloGroup{}), 0);
  EXPECT_EQ(first.next(SoloGroup{}), -1);
}

/// What each lane got.
std::vector<std::vector<std::int64_t>> take_all(int num_lanes, std::int64_t num_tickets) {
  std::uint64_t counter = 0;
  std::vector<std::vector<std::int64_t>> taken(static_cast<std::size_t>(num_lanes));
  std::vector<std::thread> lanes;
  lanes.reserve(taken.size());
  for (std::vector<std::int64_t>& own : taken) {
    lanes.emplace_back([&counter, &own, num_tickets] {
      Tickets tickets(SoloGroup{}, &counter, num_tickets);
      for (std::int64_t ticket = tickets.next(SoloGroup{}); ticket >= 0;
           ticket = tickets.next(SoloGroup{})) {
        own.push_back(ticket);
      }
    });
  }
  for (std::thread& lane : lanes) lane.join();
  EXPECT_EQ(counter, static_cast<std::uint64_t>(num_tickets + num_lanes));
  return taken;
}

TEST(TicketStream, GivesEveryTicketToExactlyOneLane) {
  for (int round = 0; round < scaled_rounds(40, 1'000); ++round) {
    const int num_lanes = 1 + round % 7;
    const std::int64_t num_tickets = round % 5 == 0 ? round % 3 : 100 * round;
    std::vector<std::int64_t> times_taken(static_cast<std::size_t>(num_tickets));
    for (const std::vector<std::int64_t>& own : take_all(num_lanes, num_tickets)) {
      EXPECT_TRUE(std::is_sorted(own.begin(), own.end()));
      for (const std::int64_t ticket : own) ++times_taken.at(static_cast<std::size_t>(ticket));
    }
    EXPECT_EQ(std::count(times_taken.begin(), times_taken.end(), 1), num_tickets);
  }
}

}  // namespace
}  // namespace ep::test
