// SPDX-License-Identifier: Apache-2.0
// Bootstrap of ranks that are threads.
#include <ep/bootstrap.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace ep {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPatience{20'000};

/// Runs `body` for every rank but those in `absent`, each on its own thread.
std::vector<Status> run_all(std::vector<std::unique_ptr<Bootstrap>>& bootstraps,
                            const std::vector<int>& absent,
                            const std::function<Status(Bootstrap&)>& body) {
  std::vector<Status> statuses(bootstraps.size());
  std::vector<std::jthread> threads;
  for (std::size_t rank = 0; rank < bootstraps.size(); ++rank) {
    if (std::count(absent.begin(), absent.end(), static_cast<int>(rank)) > 0) continue;
    threads.emplace_back([&, rank] { statuses[rank] = body(*bootstraps[rank]); });
  }
  return statuses;
}

Bootstrap::Bytes bytes_of(int rank, int round) {
  return Bootstrap::Bytes(static_cast<std::size_t>((rank + round) % 5),
                          static_cast<std::byte>(rank * 16 + round % 16));
}

Status gather_rounds(Bootstrap& bootstrap) {
  constexpr int kNumRounds = 200;
  for (int round = 0; round < kNumRounds; ++round) {
    const auto all = bootstrap.all_gather(bytes_of(bootstrap.rank(), round), kPatience);
    if (!all.ok()) return all.status();
    for (int rank = 0; rank < bootstrap.num_ranks(); ++rank) {
      if ((*all)[static_cast<std::size_t>(rank)] != bytes_of(rank, round)) {
        return Status(Errc::kInternal, "wrong bytes of rank " + std::to_string(rank));
      }
    }
  }
  return bootstrap.barrier(kPatience);
}

TEST(InProcessBootstrap, GathersInRankOrder) {
  for (int num_ranks : {1, 2, 5}) {
    auto bootstraps = make_in_process_bootstraps(num_ranks);
    ASSERT_TRUE(bootstraps.ok());
    for (const Status& status : run_all(*bootstraps, {}, gather_rounds)) {
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
  }
}

TEST(InProcessBootstrap, NamesTheRanksThatDoNotCome) {
  auto bootstraps = make_in_process_bootstraps(4);
  const auto statuses = run_all(*bootstraps, {1, 3}, [](Bootstrap& bootstrap) {
    return bootstrap.barrier(milliseconds(50));
  });
  for (int rank : {0, 2}) {
    const Status& status = statuses[static_cast<std::size_t>(rank)];
    EXPECT_EQ(status.code(), Errc::kPeerTimeout);
    EXPECT_EQ(status.peer(), 1);
    EXPECT_NE(status.message().find("rank 1, 3"), std::string::npos) << status.message();
  }
  EXPECT_EQ((*bootstraps)[1]->barrier(kPatience).code(), Errc::kPeerTimeout)
      << "a late rank hears it too, at once";
}

TEST(InProcessBootstrap, NamesARankThatHasLeft) {
  auto bootstraps = make_in_process_bootstraps(3);
  (*bootstraps)[2].reset();
  const auto statuses =
      run_all(*bootstraps, {2}, [](Bootstrap& bootstrap) { return bootstrap.barrier(kPatience); });
  for (int rank : {0, 1}) {
    EXPECT_EQ(statuses[static_cast<std::size_t>(rank)].code(), Errc::kPeerTimeout);
    EXPECT_EQ(statuses[static_cast<std::size_t>(rank)].peer(), 2);
  }
}

TEST(InProcessBootstrap, MayLeaveAfterTheLastRound) {
  for (int round = 0; round < 50; ++round) {
    auto bootstraps = make_in_process_bootstraps(3);
    std::vector<std::jthread> threads;
    for (auto& bootstrap : *bootstraps) {
      threads.emplace_back([&bootstrap] {
        EXPECT_TRUE(bootstrap->barrier(kPatience).ok());
        bootstrap.reset();
      });
    }
  }
}

TEST(InProcessBootstrap, RefusesNoRanks) {
  EXPECT_EQ(make_in_process_bootstraps(0).status().code(), Errc::kInvalidArgument);
  EXPECT_EQ(make_in_process_bootstraps(-2).status().message(),
            "num_ranks = -2, expected at least 1");
}

}  // namespace
}  // namespace ep
