// SPDX-License-Identifier: Apache-2.0
// What is held back leaves in the order, the window and at the times that were asked for; and the
// random numbers behind it.
#include "fabric/chaos/held_queue.h"

#include "fabric/chaos/random.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace ep::fabric {
namespace {

std::vector<int> taken_at(HeldQueue<int>& queue, std::uint64_t now) {
  std::vector<int> taken;
  while (const auto next = queue.ready(now)) taken.push_back(queue.take(*next));
  return taken;
}

TEST(HeldQueue, OrderedWaitsForItsHead) {
  HeldQueue<int> queue(ArrivalOrder::kOrdered, 8);
  queue.push(1, 5, 9);
  queue.push(2, 0, 1);
  EXPECT_EQ(taken_at(queue, 4), std::vector<int>());
  EXPECT_EQ(taken_at(queue, 5), (std::vector<int>{1, 2}));
}

TEST(HeldQueue, UnorderedGoesByKeyAmongWhatIsDue) {
  HeldQueue<int> queue(ArrivalOrder::kUnordered, 8);
  queue.push(1, 0, 9);
  queue.push(2, 0, 3);
  queue.push(3, 7, 1);
  EXPECT_EQ(taken_at(queue, 0), (std::vector<int>{2, 1}));
  EXPECT_EQ(taken_at(queue, 7), std::vector<int>{3});
}

TEST(HeldQueue, NothingIsOvertakenByAWholeWindow) {
  HeldQueue<int> queue(ArrivalOrder::kUnordered, 3);
  queue.push(0, 10, 0);
  for (int i = 1; i < 6; ++i) queue.push(i, 0, 0);
  EXPECT_EQ(taken_at(queue, 0), (std::vector<int>{1, 2})) << "3 came 3 items after 0";
  EXPECT_EQ(taken_at(queue, 10), (std::vector<int>{0, 3, 4, 5}));
}

TEST(ChaosRandom, StreamsDifferInEveryPartOfTheirKey) {
  const auto first_of = [](std::uint64_t seed, int rank, int context, int peer, bool is_turn) {
    const ChaosPurpose purpose = is_turn ? ChaosPurpose::kTurn : ChaosPurpose::kPost;
    return chaos_stream(seed, rank, context, peer, purpose).next();
  };
  std::set<std::uint64_t> first;
  for (int key = 0; key < 32; ++key) {
    const auto bit = [key](int index) { return key >> index & 1; };
    first.insert(first_of(static_cast<std::uint64_t>(bit(0)), bit(1), bit(2), bit(3), bit(4) != 0));
  }
  EXPECT_EQ(first.size(), 32u);
}

TEST(ChaosRandom, IsTheSameOnEveryMachine) {
  ChaosRandom random = chaos_stream(7, 1, 2, 3, ChaosPurpose::kPost);
  EXPECT_EQ(random.next(), 13169320290634269200u);
}

TEST(ChaosRandom, ChanceIsInThousands) {
  ChaosRandom random(1);
  int num_hits = 0;
  for (int i = 0; i < 100000; ++i) num_hits += random.chance(250) ? 1 : 0;
  EXPECT_NEAR(num_hits, 25000, 600);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_TRUE(random.chance(1000));
    EXPECT_FALSE(random.chance(0));
    EXPECT_EQ(random.below(0), 0);
    EXPECT_LT(random.below(3), 3);
  }
}

}  // namespace
}  // namespace ep::fabric
