// SPDX-License-Identifier: Apache-2.0
// Waits: what ends them, and what they leave behind.
#include "primitives/wait.h"

#include "tests/primitives/virtual_exec.h"
#include "tests/support/control_window.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace ep::test {
namespace {

using layout::FaultRecord;
using primitives::SoloGroup;
using primitives::WaitSite;

constexpr int kRanks = 4;
constexpr std::uint64_t kEpoch = 7;
constexpr std::uint64_t kTimeoutNs = 5'000'000;
// Liveness is looked at for the first time after so many polls.
constexpr int kFirstLivenessPoll =
    primitives::kPollsPerCheck * primitives::kChecksPerLivenessCheck / 2;
constexpr std::uint64_t kFirstLivenessNs = kFirstLivenessPoll * VirtualMachine::kNsPerPoll;
// A deadline is looked at once per so many polls.
constexpr std::uint64_t kCheckNs = primitives::kPollsPerCheck * VirtualMachine::kNsPerPoll;

/// Rank `kSelf` waits for `word_`.
class Wait : public ::testing::Test {
 protected:
  static constexpr int kSelf = 1;

  Wait() {
    window_.set_next_epoch(kEpoch);
    window_.set_timeout(kTimeoutNs);
    VirtualExec::restart();
  }

  primitives::OpContext<VirtualExec> op(int rank = kSelf) {
    return primitives::OpContext<VirtualExec>(window_.params(rank));
  }
  bool wait(const primitives::WaitFor& wait) {
    return primitives::wait_until(SoloGroup{}, op(), wait, [this] { return word_; });
  }
  /// Rank `rank` waits for `peer` since long.
  void block(int rank, int peer) {
    window_.local(rank).blocked_on.value =
        layout::tagged_word(layout::tag_of(kEpoch), static_cast<std::uint32_t>(peer) + 1);
  }

  ControlWindow window_{{.num_ranks = kRanks}};
  std::uint64_t word_ = 0;
};

TEST_F(Wait, IsOverAtOnceWhenTheWordIsThere) {
  word_ = 5;
  EXPECT_TRUE(wait({WaitSite::kArrived, 2, 5}));
  EXPECT_EQ(VirtualExec::machine().num_polls, 0);
}

TEST_F(Wait, EndsWithThePollThatFindsTheWord) {
  for (const int poll : {1, 63, 64, 65, 1'000}) {
    word_ = 4;
    VirtualExec::restart([&](int polls) {
      if (polls == poll) word_ = 5;
    });
    EXPECT_TRUE(wait({WaitSite::kArrived, 2, 5}));
    EXPECT_EQ(VirtualExec::machine().num_polls, poll);
  }
  EXPECT_EQ(window_.fault(kSelf).claimed, 0U);
}

TEST_F(Wait, ForAllPollsEveryRankAndNamesTheOneThatDoesNotCome) {
  const auto wait_for_all = [&](int absent) {
    VirtualExec::restart();
    return primitives::wait_for_all(SoloGroup{}, op(), WaitSite::kAnnounced, 5,
                                    [&](int rank) { return rank == absent ? 4U : 5U; });
  };
  EXPECT_TRUE(wait_for_all(kRanks));
  EXPECT_EQ(VirtualExec::machine().num_polls, 0);
  EXPECT_FALSE(wait_for_all(3));
  EXPECT_EQ(window_.fault(kSelf).direct_peer, 3);
}

TEST_F(Wait, AWatchAnswersWithWhatTheCallBeforeLoaded) {
  const auto context = op();
  primitives::AbortWatch<VirtualExec> watch(context);
  EXPECT_TRUE(watch.may_proceed(SoloGroup{}));
  window_.abort_word(kSelf) = 1;
  EXPECT_TRUE(watch.may_proceed(SoloGroup{}));
  EXPECT_FALSE(watch.may_proceed(SoloGroup{}));
}

TEST_F(Wait, TakesNoOtherValueForTheExpectedOne) {
  VirtualExec::restart([&](int polls) { word_ = polls == 100 ? 5 : 4 + 2 * (polls % 2U); });
  EXPECT_TRUE(wait({WaitSite::kArrived, 2, 5}));
  EXPECT_EQ(VirtualExec::machine().num_polls, 100);
}

TEST_F(Wait, LeavesARecordWithTheNumbersAtItsDeadline) {
  window_.params(kSelf).announcement[layout::OpField::kKind] =
      static_cast<std::uint32_t>(layout::OpKind::kCombine);
  word_ = 41;
  EXPECT_FALSE(wait({WaitSite::kChunk, 2, 42}));
  const FaultRecord& record = window_.fault(kSelf);
  EXPECT_EQ(record.claimed, 2U);
  EXPECT_EQ(record.op, static_cast<std::uint32_t>(layout::OpKind::kCombine));
  EXPECT_EQ(record.site, static_cast<std::uint32_t>(WaitSite::kChunk));
  EXPECT_EQ(record.reporter, kSelf);
  EXPECT_EQ(record.peer, 2);
  EXPECT_EQ(record.direct_peer, 2);
  EXPECT_EQ(record.peer_is_gone, 0U);
  EXPECT_EQ(record.epoch, kEpoch);
  EXPECT_EQ(record.expected, 42U);
  EXPECT_EQ(record.got, 41U);
  EXPECT_GT(record.waited_ns, kTimeoutNs);
  EXPECT_LE(record.waited_ns, kTimeoutNs + kCheckNs);
}

TEST_F(Wait, TellsEveryRankAtItsDeadline) {
  EXPECT_FALSE(wait({WaitSite::kChunk, 2, 42}));
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(window_.fault(rank).claimed, 2U) << rank;
    EXPECT_EQ(window_.fault(rank).reporter, kSelf) << rank;
    EXPECT_EQ(window_.fault(rank).expected, 42U) << rank;
    EXPECT_NE(window_.abort_word(rank), 0U) << rank;
  }
}

TEST_F(Wait, ForOwnLanesOutlastsTheirWaitsForPeers) {
  EXPECT_FALSE(wait({WaitSite::kResolved, kSelf, 1}));
  EXPECT_GT(window_.fault(kSelf).waited_ns, kTimeoutNs * kRanks);
  EXPECT_EQ(window_.fault(kSelf).peer, kSelf);
}

TEST_F(Wait, EndsWithoutARecordWhenTheGroupGaveUp) {
  VirtualExec::restart([&](int polls) {
    if (polls == 100) window_.abort_word(kSelf) = 1;
  });
  EXPECT_FALSE(wait({WaitSite::kArrived, 2, 5}));
  EXPECT_EQ(VirtualExec::machine().num_polls, 2 * primitives::kPollsPerCheck);
  EXPECT_EQ(window_.fault(kSelf).claimed, 0U);
  EXPECT_FALSE(op().may_proceed());
}

TEST_F(Wait, StillTakesTheWordWhenTheGroupGaveUp) {
  window_.abort_word(kSelf) = 1;
  VirtualExec::restart([&](int polls) {
    if (polls == primitives::kPollsPerCheck) word_ = 5;
  });
  EXPECT_TRUE(wait({WaitSite::kArrived, 2, 5}));
}

TEST_F(Wait, NamesAPeerThatIsGoneLongBeforeTheDeadline) {
  block(2, 3);  // its last word does not shift the blame
  window_.set_gone(2);
  EXPECT_FALSE(wait({WaitSite::kArrived, 2, 5}));
  const FaultRecord& record = window_.fault(kSelf);
  EXPECT_EQ(record.peer, 2);
  EXPECT_EQ(record.peer_is_gone, 1U);
  EXPECT_LE(record.waited_ns, kFirstLivenessNs);
}

TEST_F(Wait, DoesNotMindThatAnotherPeerIsGone) {
  window_.set_gone(3);
  VirtualExec::restart([&](int polls) {
    if (polls == 1'000) word_ = 5;
  });
  EXPECT_TRUE(wait({WaitSite::kArrived, 2, 5}));
}

TEST_F(Wait, SeesWhatAPeerWroteBeforeItLeft) {
  // The peer writes and leaves just after this rank looked at the word.
  const auto read = [this] {
    const std::uint64_t seen = word_;
    if (VirtualExec::machine().num_polls == kFirstLivenessPoll) {
      word_ = 5;
      window_.set_gone(2);
    }
    return seen;
  };
  EXPECT_TRUE(primitives::wait_until(SoloGroup{}, op(), {WaitSite::kArrived, 2, 5}, read));
  EXPECT_EQ(window_.fault(kSelf).claimed, 0U);
}

TEST_F(Wait, SaysForWhomItWaitsUntilItIsOver) {
  const std::uint64_t& blocked_on = window_.local(kSelf).blocked_on.value;
  std::uint64_t seen = 0;
  VirtualExec::restart([&](int polls) {
    seen = blocked_on;
    if (polls == 1'000) word_ = 5;
  });
  EXPECT_TRUE(wait({WaitSite::kArrived, 2, 5}));
  EXPECT_EQ(seen, layout::tagged_word(layout::tag_of(kEpoch), 3));
  EXPECT_EQ(blocked_on, 0U);
}

TEST_F(Wait, ForOwnLanesBlamesNobody) {
  std::uint64_t seen = 0;
  VirtualExec::restart([&](int polls) {
    seen |= window_.local(kSelf).blocked_on.value;
    if (polls == 1'000) word_ = 5;
  });
  EXPECT_TRUE(wait({WaitSite::kResolved, kSelf, 5}));
  EXPECT_EQ(seen, 0U);
}

TEST_F(Wait, BlamesTheEndOfTheChainAtItsDeadline) {
  block(2, 3);
  block(3, 0);
  EXPECT_FALSE(wait({WaitSite::kArrived, 2, 5}));
  EXPECT_EQ(window_.fault(kSelf).peer, 0);
  EXPECT_EQ(window_.fault(kSelf).direct_peer, 2);
}

TEST_F(Wait, ChainsEndWhereARankWaitsForNobody) {
  EXPECT_EQ(primitives::end_of_chain(op(), 3), 3);
  block(3, 2);
  EXPECT_EQ(primitives::end_of_chain(op(), 3), 2);
}

TEST_F(Wait, ChainsEndAtWordsOfOlderOperations) {
  block(2, 3);
  window_.local(3).blocked_on.value = layout::tagged_word(layout::tag_of(kEpoch - 2), 1);
  EXPECT_EQ(primitives::end_of_chain(op(), 2), 3);
}

TEST_F(Wait, ChainsGoOnAtARankThatIsInTheOperationBefore) {
  block(2, 3);
  window_.local(3).blocked_on.value = layout::tagged_word(layout::tag_of(kEpoch - 1), 1);
  EXPECT_EQ(primitives::end_of_chain(op(), 2), 0);
}

TEST_F(Wait, ARankOfAnotherNodeIsToBlameOnlyIfItsHostWaitsForIt) {
  const std::vector<std::int32_t> hosts = {0, 1, 2, 2};  // rank 2 stands in for rank 3
  window_.params(kSelf).host_of = hosts.data();
  EXPECT_EQ(primitives::end_of_chain(op(), 3), 2);
  block(2, 3);
  EXPECT_EQ(primitives::end_of_chain(op(), 3), 3);
  block(2, 0);
  EXPECT_EQ(primitives::end_of_chain(op(), 3), 0);
}

TEST_F(Wait, ChainsThatComeBackToTheReporterEndBeforeIt) {
  block(2, 3);
  block(3, kSelf);
  EXPECT_EQ(primitives::end_of_chain(op(), 2), 3);
}

TEST_F(Wait, ChainsThatAreRingsEnd) {
  block(2, 3);
  block(3, 0);
  block(0, 2);
  EXPECT_NE(primitives::end_of_chain(op(), 2), kSelf);
  block(0, 0);
  EXPECT_EQ(primitives::end_of_chain(op(), 2), 0);
}

TEST_F(Wait, ChainsEndAtRanksThatDoNotExist) {
  block(2, kRanks);
  EXPECT_EQ(primitives::end_of_chain(op(), 2), 2);
}

TEST_F(Wait, ALaterFaultLeavesTheFirstRecord) {
  for (const std::uint32_t claimed : {1U, 2U}) {
    window_.fault(3) = {.claimed = claimed, .reporter = 3, .peer = 0, .expected = 99};
    EXPECT_FALSE(primitives::give_up<VirtualExec>(&window_.params(kSelf), kEpoch,
                                                  {WaitSite::kArrived, 2, 5}, 4, 0, false));
    EXPECT_EQ(window_.fault(3).claimed, claimed);
    EXPECT_EQ(window_.fault(3).reporter, 3);
    EXPECT_EQ(window_.fault(3).expected, 99U);
    EXPECT_EQ(window_.fault(0).expected, 5U);
    for (int rank = 0; rank < kRanks; ++rank) EXPECT_NE(window_.abort_word(rank), 0U) << rank;
  }
}

/// What rank `rank` waits for: all follows from one number.
primitives::WaitFor wait_of(int rank) {
  return {static_cast<WaitSite>(rank), (rank + 1) % kRanks, static_cast<std::uint64_t>(rank) + 5};
}

void expect_whole(FaultRecord& seen) {
  // [sync:fault] acquire: the record
  ASSERT_EQ(primitives::HostMemory::load_acquire_sys(&seen.claimed), 2U);
  const auto number = static_cast<std::uint64_t>(seen.reporter);
  const primitives::WaitFor wait = wait_of(seen.reporter);
  EXPECT_EQ(seen.op, number + 1);
  EXPECT_EQ(seen.site, number);
  EXPECT_EQ(seen.peer, wait.peer);
  EXPECT_EQ(seen.direct_peer, wait.peer);
  EXPECT_EQ(seen.peer_is_gone, number % 2);
  EXPECT_EQ(seen.epoch, number + 9);
  EXPECT_EQ(seen.expected, wait.expected);
  EXPECT_EQ(seen.got, number);
  EXPECT_GT(seen.waited_ns, 0U);
}

TEST(Fault, OneWholeRecordStaysWhereAllRanksGiveUpAtOnce) {
  for (int round = 0; round < scaled_rounds(100, 2'000); ++round) {
    ControlWindow window({.num_ranks = kRanks});
    std::vector<std::thread> ranks;
    ranks.reserve(kRanks);
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([&window, rank] {
        const auto number = static_cast<std::uint64_t>(rank);
        primitives::OpParams params = window.params(rank);
        params.announcement[layout::OpField::kKind] = static_cast<std::uint32_t>(rank) + 1;
        primitives::give_up<primitives::HostExec>(&params, number + 9, wait_of(rank), number, 0,
                                                  rank % 2 == 1);
      });
    }
    for (std::thread& rank : ranks) rank.join();
    for (int rank = 0; rank < kRanks; ++rank) expect_whole(window.fault(rank));
  }
}

}  // namespace
}  // namespace ep::test
