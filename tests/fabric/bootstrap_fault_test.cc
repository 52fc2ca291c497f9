// SPDX-License-Identifier: Apache-2.0
// Processes of a job that are killed or stopped: the others name them in time.
#include "tests/fabric/tcp_ranks.h"

#include <ep/bootstrap.h>

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace ep {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPatience{20'000};
constexpr int kUnexpected = 100;

/// Forks one process per rank; each exits with what `body` returns.
std::vector<pid_t> fork_ranks(int num_ranks, const std::function<int(Bootstrap&)>& body) {
  const auto configs = test::local_configs(num_ranks, kPatience);
  std::vector<pid_t> children;
  for (const TcpBootstrapConfig& config : configs) {
    const pid_t child = ::fork();
    if (child == 0) {
      auto bootstrap = make_tcp_bootstrap(config);
      ::_exit(bootstrap.ok() ? body(**bootstrap) : kUnexpected);
    }
    children.push_back(child);
  }
  return children;
}

/// Exit code of each, -signal for those that a signal ended.
std::vector<int> wait_for_all(const std::vector<pid_t>& children) {
  std::vector<int> codes;
  for (pid_t child : children) {
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    codes.push_back(WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status));
  }
  return codes;
}

/// Gathers until that fails; then the number of the rank that the error names.
int blamed_rank(Bootstrap& bootstrap, milliseconds timeout) {
  while (true) {
    const Status status = bootstrap.barrier(timeout);
    if (status.ok()) continue;
    return status.code() == Errc::kPeerTimeout ? status.peer() : kUnexpected;
  }
}

TEST(BootstrapFault, TheOthersNameAKilledRankAtOnce) {
  for (int victim : {0, 2}) {
    const auto start = std::chrono::steady_clock::now();
    const auto children =
        fork_ranks(4, [](Bootstrap& bootstrap) { return blamed_rank(bootstrap, kPatience); });
    ::usleep(200'000);
    ASSERT_EQ(::kill(children[static_cast<std::size_t>(victim)], SIGKILL), 0);
    const std::vector<int> codes = wait_for_all(children);
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(codes[static_cast<std::size_t>(rank)], rank == victim ? -SIGKILL : victim)
          << "rank " << rank << ", victim " << victim;
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, kPatience / 2);
  }
}

TEST(BootstrapFault, TheOthersNameAStoppedRankByTheDeadline) {
  constexpr int kVictim = 1;
  const auto children = fork_ranks(
      3, [](Bootstrap& bootstrap) { return blamed_rank(bootstrap, milliseconds(1000)); });
  ::usleep(200'000);
  ASSERT_EQ(::kill(children[kVictim], SIGSTOP), 0);
  EXPECT_EQ(wait_for_all({children[0], children[2]}), (std::vector<int>{kVictim, kVictim}));
  ASSERT_EQ(::kill(children[kVictim], SIGKILL), 0);
  EXPECT_EQ(wait_for_all({children[kVictim]}), std::vector<int>{-SIGKILL});
}

TEST(BootstrapFault, RankZeroThatDiesDuringTheRendezvousIsNamed) {
  auto configs = test::local_configs(3, milliseconds(1500));
  const pid_t host = ::fork();
  if (host == 0) {
    make_tcp_bootstrap(configs[0]).ok();
    ::_exit(0);
  }
  const pid_t guest = ::fork();
  if (guest == 0) {
    const auto bootstrap = make_tcp_bootstrap(configs[1]);
    ::_exit(bootstrap.ok() ? kUnexpected : bootstrap.status().peer());
  }
  ::usleep(300'000);
  ASSERT_EQ(::kill(host, SIGKILL), 0);
  EXPECT_EQ(wait_for_all({host, guest}), (std::vector<int>{-SIGKILL, 0}));
}

}  // namespace
}  // namespace ep
