// SPDX-License-Identifier: Apache-2.0
// S17: a rank is killed, stopped, leaves or never calls; the others end in time with an error that
// names it.
#include "tests/support/moe_ops.h"
#include "tests/support/process_state.h"
#include "tests/support/routing_cases.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace ep::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kNumRanks = 4;
constexpr milliseconds kTimeout{1000};
// For what follows the deadline: the report to the peers, the end of the process, a busy machine.
constexpr milliseconds kSlack{3000 * kSanitizerSlowdown};

enum class Fault : std::uint8_t {
  kKilled,   ///< SIGKILL at a random instant
  kStopped,  ///< SIGSTOP at a random instant
  kAbsent,   ///< does not make its next call
  kLeaves,   ///< destroys its group and exits
};

const char* name_of(Fault fault) {
  switch (fault) {
    case Fault::kKilled:
      return "killed";
    case Fault::kStopped:
      return "stopped";
    case Fault::kAbsent:
      return "absent";
    case Fault::kLeaves:
      return "leaves";
  }
  return "?";
}

/// What a survivor reports.
struct Outcome {
  Errc code = Errc::kOk;
  int peer = Status::kNoPeer;
  std::int64_t milliseconds_of_last_call = 0;
};

Oracle make_oracle() {
  Problem problem{.routing = uniform_routing(kNumRanks, 64, 4, 16, 5),
                  .layout = Layout::kExpertMajor};
  return Oracle(problem);
}

GroupConfig make_config(const Oracle& oracle) {
  GroupConfig config = config_for(oracle.problem());
  config.timeout = kTimeout;
  return config;
}

/// One round of calls: the status of the first that fails.
Status one_round(Group& group, const Oracle& oracle, const DispatchInput& input) {
  DispatchOptions options;
  options.layout = oracle.problem().layout;
  options.experts = map_of(oracle.problem());
  const auto output = dispatch(group, input, options);
  if (!output.ok()) return output.status();
  CombineInput rows;
  rows.rows = output->x.view();
  return combine(group, output->handle, rows).status();
}

/// A failed group leaves process and device usable: another one works, and is checked.
void use_another_group(RankContext& context, Bootstrap& bootstrap) {
  RankStep step;
  RankContext inner(bootstrap, step);
  const Problem problem{.routing = uniform_routing(bootstrap.num_ranks(), 40, 3, 8, 7),
                        .layout = Layout::kExpertMajor};
  const Oracle oracle(problem);
  const auto group = Group::create(bootstrap, config_for(problem));
  if (!context.expect_ok(group.status(), "another group")) return;
  const auto output = checked_dispatch(inner, **group, oracle);
  if (output) checked_combine(inner, **group, oracle, output->handle, {.weighted = true});
  for (const std::string& failure : inner.take_report().failures)
    context.fail("in another group, " + failure);
}

void use_another_group_alone(RankContext& context) {
  auto alone = make_in_process_bootstraps(1);
  if (context.expect_ok(alone.status(), "bootstrap")) use_another_group(context, *alone->front());
}

/// Calls until something fails.
void survive(RankContext& context, Group& group, const Oracle& oracle) {
  const RankInputs inputs(oracle.problem(), context.rank());
  Outcome outcome;
  Status status;
  for (int round = 0; status.ok(); ++round) {
    context.step("round", round);
    const auto begin = Clock::now();
    status = one_round(group, oracle, inputs.views());
    outcome.milliseconds_of_last_call =
        std::chrono::duration_cast<milliseconds>(Clock::now() - begin).count();
  }
  outcome.code = status.code();
  outcome.peer = status.peer();
  const Status again = one_round(group, oracle, inputs.views());
  context.expect(again.code() == Errc::kAborted,
                 "the call after the failure: " + again.to_string());
  context.expect(!group.status().ok(), "the group forgot its failure");
  const std::string text = status.message();
  const auto has = [&text](const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  context.expect(has("epoch"), "no epoch in: " + text);
  context.expect(has("dispatch, ") || has("combine, "), "no operation in: " + text);
  context.expect(has("rank " + std::to_string(status.peer())), "no missing rank in: " + text);
  // What was waited for tells the role that did.
  context.expect(has(" waited ") && has("("), "no stage in: " + text);
  context.bytes.resize(sizeof(outcome) + text.size());
  std::memcpy(context.bytes.data(), &outcome, sizeof(outcome));
  std::memcpy(context.bytes.data() + sizeof(outcome), text.data(), text.size());
}

/// The victim's part: works for `delay`, then its fault happens.
void fail(Fault fault, Group& group, const Oracle& oracle, int rank, milliseconds delay) {
  const RankInputs inputs(oracle.problem(), rank);
  const bool is_signalled = fault == Fault::kKilled || fault == Fault::kStopped;
  std::thread signaller([&] {
    std::this_thread::sleep_for(delay);
    if (is_signalled) kill(getpid(), fault == Fault::kKilled ? SIGKILL : SIGSTOP);
  });
  const auto end = Clock::now() + delay;
  while (is_signalled || Clock::now() < end) {
    if (!one_round(group, oracle, inputs.views()).ok()) break;
  }
  signaller.join();
  if (fault == Fault::kAbsent) std::this_thread::sleep_for(std::chrono::hours(1));
}

bool has_ended(pid_t pid) {
  siginfo_t info = {};
  return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid;
}

/// Kills the victim once the others have ended, or did not in time: then the watchdog reports them.
void end_victim(std::span<const pid_t> pids, int victim) {
  const auto deadline = Clock::now() + std::chrono::seconds(40 * kSanitizerSlowdown);
  for (std::size_t rank = 0; rank < pids.size(); ++rank) {
    while (static_cast<int>(rank) != victim && !has_ended(pids[rank]) && Clock::now() < deadline) {
      std::this_thread::sleep_for(milliseconds(2));
    }
  }
  kill(pids[static_cast<std::size_t>(victim)], SIGKILL);
}

void expect_blamed(const RankReport& report, int rank, int victim) {
  SCOPED_TRACE("rank " + std::to_string(rank) + ", victim " + std::to_string(victim));
  for (const std::string& failure : report.failures) ADD_FAILURE() << failure;
  EXPECT_EQ(report.exit_signal, 0);
  Outcome outcome;
  ASSERT_GE(report.bytes.size(), sizeof(outcome));
  std::memcpy(&outcome, report.bytes.data(), sizeof(outcome));
  std::string text(report.bytes.size() - sizeof(outcome), ' ');
  std::memcpy(text.data(), report.bytes.data() + sizeof(outcome), text.size());
  SCOPED_TRACE(text);
  EXPECT_EQ(outcome.code, Errc::kPeerTimeout);
  EXPECT_EQ(outcome.peer, victim);
  EXPECT_LE(outcome.milliseconds_of_last_call, (kTimeout + kSlack).count());
}

class DeadPeer : public ::testing::TestWithParam<Fault> {};

INSTANTIATE_TEST_SUITE_P(
    Faults,
    DeadPeer,
    ::testing::Values(Fault::kKilled, Fault::kStopped, Fault::kAbsent, Fault::kLeaves),
    [](const auto& fault) { return std::string(name_of(fault.param)); });

TEST_P(DeadPeer, IsNamedByAllOthersWithinTheDeadlineAndLeavesNothing) {
  const Oracle oracle = make_oracle();
  const ProcessState before = process_state();
  const auto names_before = named_leftovers("ep-test");
  Random random(static_cast<std::uint64_t>(GetParam()) + 1);
  const int num_rounds = scaled_rounds(4, 50);
  for (int round = 0; round < num_rounds; ++round) {
    const int victim = static_cast<int>(uniform(random, 0, kNumRanks - 1));
    const milliseconds delay(uniform(random, 0, 150));
    RanksOptions options{.num_ranks = kNumRanks, .launch = Launch::kForks};
    options.while_running = [&](std::span<const pid_t> pids) { end_victim(pids, victim); };
    const auto reports = run_ranks(options, [&](RankContext& context) {
      const auto group = Group::create(context.bootstrap(), make_config(oracle));
      if (!context.expect_ok(group.status(), "create")) return;
      if (context.rank() == victim) return fail(GetParam(), **group, oracle, victim, delay);
      survive(context, **group, oracle);
      use_another_group_alone(context);
    });
    for (int rank = 0; rank < kNumRanks; ++rank) {
      if (rank != victim) expect_blamed(reports[static_cast<std::size_t>(rank)], rank, victim);
    }
  }
  EXPECT_EQ(num_children(), 0);
  EXPECT_EQ(process_state().num_fds, before.num_fds);
  EXPECT_EQ(named_leftovers("ep-test"), names_before);
}

TEST(AbsentPeer, InGroupCreationIsNamedByAllOthers) {
  const Oracle oracle = make_oracle();
  const int victim = 2;
  RanksOptions options{.num_ranks = kNumRanks, .launch = Launch::kForks};
  options.while_running = [&](std::span<const pid_t> pids) { end_victim(pids, victim); };
  const auto reports = run_ranks(options, [&](RankContext& context) {
    if (context.rank() == victim) std::this_thread::sleep_for(std::chrono::hours(1));
    const Status status = Group::create(context.bootstrap(), make_config(oracle)).status();
    context.expect(status.code() == Errc::kPeerTimeout, status.to_string());
    context.expect(status.message().find("rank 2") != std::string::npos || status.peer() == victim,
                   status.to_string());
  });
  for (int rank = 0; rank < kNumRanks; ++rank) {
    for (const std::string& failure : reports[static_cast<std::size_t>(rank)].failures) {
      if (rank != victim) ADD_FAILURE() << "rank " << rank << " " << failure;
    }
  }
}

// On GPUs in a process of its own (gpu_check.sh): one that has used them forks no more ranks.
TEST(AbsentPeer, AmongThreadsIsNamedByAllOthers) {
  const Oracle oracle = make_oracle();
  for (int victim = 0; victim < kNumRanks; ++victim) {
    auto survivors = make_in_process_bootstraps(kNumRanks - 1);
    ASSERT_TRUE(survivors.ok()) << survivors.status().to_string();
    const auto reports = run_ranks({.num_ranks = kNumRanks}, [&](RankContext& context) {
      const auto group = Group::create(context.bootstrap(), make_config(oracle));
      if (!context.expect_ok(group.status(), "create")) return;
      if (context.rank() != victim) {
        survive(context, **group, oracle);
        const int place = context.rank() - (context.rank() > victim ? 1 : 0);
        return use_another_group(context, *(*survivors)[static_cast<std::size_t>(place)]);
      }
      // Present, but not calling, until the others have given up.
      std::this_thread::sleep_for(kTimeout + milliseconds(500 * kSanitizerSlowdown));
    });
    for (int rank = 0; rank < kNumRanks; ++rank) {
      if (rank != victim) expect_blamed(reports[static_cast<std::size_t>(rank)], rank, victim);
    }
  }
}

}  // namespace
}  // namespace ep::test
