// SPDX-License-Identifier: Apache-2.0
// Peers that are killed or stopped, and strangers that knock.
#include "fabric/host/arena.h"
#include "tests/fabric/arena_ranks.h"
#include "tests/support/ranks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <sched.h>
#include <span>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace ep::fabric {
namespace {

using test::kArenaPatience;
using test::Launch;
using test::patient;
using test::RankContext;

constexpr int kVictim = 1;

/// Where the survivors of one run wait for each other without the bootstrap, which died with the
/// victim: one that has left is gone for the others too. Made before the ranks are.
class SurvivorBarrier {
 public:
  SurvivorBarrier()
      : num_arrived_(
            new (::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
                std::atomic<int>(0)) {}
  ~SurvivorBarrier() { ::munmap(num_arrived_, kBytes); }
  SurvivorBarrier(const SurvivorBarrier&) = delete;
  SurvivorBarrier& operator=(const SurvivorBarrier&) = delete;

  void arrive_and_wait(RankContext& context) {
    const int num_survivors = context.num_ranks() - 1;
    const int place = num_arrived_->fetch_add(1);
    const int num_awaited = (place / num_survivors + 1) * num_survivors;
    const base::Deadline deadline = patient();
    while (num_arrived_->load() < num_awaited && !deadline.expired()) ::sched_yield();
    context.expect(num_arrived_->load() >= num_awaited, "another survivor is missing");
  }

 private:
  static constexpr std::size_t kBytes = sizeof(std::atomic<int>);

  std::atomic<int>* num_arrived_;
};

/// What the ranks other than the victim must see once it is dead.
void expect_victim_gone(RankContext& context, HostArena& arena, SurvivorBarrier& survivors) {
  context.expect(test::await_gone(arena, kVictim, kArenaPatience), "the victim is not gone");
  const auto segment = arena.add_segment(4096, patient());
  context.expect(segment.status().code() == Errc::kPeerTimeout, segment.status().to_string());
  context.expect(segment.status().peer() == kVictim, segment.status().to_string());
  survivors.arrive_and_wait(context);
}

/// Expects that the victim ended by SIGKILL and the others went well.
void check_reports(std::vector<test::RankReport> reports) {
  EXPECT_EQ(std::exchange(reports[kVictim].exit_signal, 0), SIGKILL);
  test::expect_fine(reports);
}

TEST(ArenaFault, AKilledRankIsGoneForItsPeers) {
  SurvivorBarrier survivors;
  check_reports(
      test::run_ranks({.num_ranks = 4, .launch = Launch::kForks}, [&](RankContext& context) {
        const auto arena = HostArena::create(context.bootstrap(), 4096, patient());
        if (!context.expect_ok(arena.status(), "create")) return;
        if (context.rank() == kVictim) ::raise(SIGKILL);
        expect_victim_gone(context, **arena, survivors);
      }));
}

/// The pid that each rank contributes.
std::vector<pid_t> exchange_pids(RankContext& context, pid_t mine) {
  const auto all =
      context.bootstrap().all_gather(std::as_bytes(std::span(&mine, 1)), kArenaPatience);
  context.expect_ok(all.status(), "pids");
  std::vector<pid_t> pids(static_cast<std::size_t>(context.num_ranks()));
  for (std::size_t rank = 0; all.ok() && rank < pids.size(); ++rank) {
    std::memcpy(&pids[rank], (*all)[rank].data(), sizeof(pid_t));
  }
  return pids;
}

TEST(ArenaFault, AKilledRankIsGoneAlsoWhereItsChildHoldsTheSockets) {
  SurvivorBarrier survivors;
  check_reports(
      test::run_ranks({.num_ranks = 3, .launch = Launch::kForks}, [&](RankContext& context) {
        const auto arena = HostArena::create(context.bootstrap(), 4096, patient());
        if (!context.expect_ok(arena.status(), "create")) return;
        pid_t child = 0;
        if (context.rank() == kVictim) {
          // As a data loader does: the child inherits every descriptor and stays.
          child = ::fork();
          if (child == 0) {
            ::sleep(60);
            ::_exit(0);
          }
        }
        const pid_t loader = exchange_pids(context, child)[kVictim];
        if (context.rank() == kVictim) ::raise(SIGKILL);
        expect_victim_gone(context, **arena, survivors);
        ::kill(loader, SIGKILL);
      }));
}

TEST(ArenaFault, AStoppedRankIsNamedAtTheDeadline) {
  SurvivorBarrier survivors;
  check_reports(
      test::run_ranks({.num_ranks = 3, .launch = Launch::kForks}, [&](RankContext& context) {
        const auto arena = HostArena::create(context.bootstrap(), 4096, patient());
        if (!context.expect_ok(arena.status(), "create")) return;
        const pid_t victim = exchange_pids(context, ::getpid())[kVictim];
        if (context.rank() == kVictim) {
          while (true) ::pause();
        }
        ::kill(victim, SIGSTOP);
        // Stopping takes effect a moment later; a segment that is still mapped in time proves
        // nothing.
        Status status;
        for (int attempt = 0; attempt < 50 && status.ok(); ++attempt) {
          status = (*arena)
                       ->add_segment(4096, base::Deadline::after(std::chrono::milliseconds(300)))
                       .status();
        }
        context.expect(status.code() == Errc::kPeerTimeout, status.to_string());
        context.expect(status.peer() == kVictim, status.to_string());
        context.expect((*arena)->gone_flags()[kVictim].load() == 0, "stopped is not gone");
        survivors.arrive_and_wait(context);
        ::kill(victim, SIGKILL);
        context.expect(test::await_gone(**arena, kVictim, kArenaPatience), "killed is gone");
      }));
}

TEST(ArenaFault, AFailureOfOneRankDuringCreationReachesAll) {
  check_reports(
      test::run_ranks({.num_ranks = 3, .launch = Launch::kForks}, [](RankContext& context) {
        // Dies between the exchange of identities and the connections, as far as the others can
        // tell.
        if (context.rank() == kVictim) {
          context.bootstrap().all_gather({}, kArenaPatience).ok();
          ::raise(SIGKILL);
        }
        const auto arena = HostArena::create(context.bootstrap(), 4096, patient());
        context.expect(arena.status().code() == Errc::kPeerTimeout, arena.status().to_string());
        context.expect(arena.status().peer() == kVictim, arena.status().to_string());
      }));
}

}  // namespace
}  // namespace ep::fabric
