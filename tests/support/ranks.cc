// SPDX-License-Identifier: Apache-2.0
// Runs a function on several ranks, as threads or as processes; a hang is a failed test, not a lost
// job.
#include "tests/support/ranks.h"

#include "base/check.h"
#include "tests/support/device.h"
#include "tests/support/forked_ranks.h"
#include "tests/support/stack_dump.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <unistd.h>
#include <utility>

namespace ep::test {
namespace {

/// Aborts the process, after a dump, if it still exists at the deadline.
class Watchdog {
 public:
  Watchdog(std::chrono::seconds limit, std::span<const RankStep> steps)
      : thread_([this, limit, steps] { watch(limit, steps); }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      is_done_ = true;
    }
    done_.notify_all();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void watch(std::chrono::seconds limit, std::span<const RankStep> steps) {
    std::unique_lock lock(mutex_);
    if (done_.wait_for(lock, limit, [this] { return is_done_; })) return;
    std::fprintf(stderr, "hang: no end after %lld s\n%s", static_cast<long long>(limit.count()),
                 describe_steps(steps).c_str());
    dump_stacks(getpid());
    std::abort();
  }

  std::mutex mutex_;
  std::condition_variable done_;
  bool is_done_ = false;
  std::thread thread_;
};

std::vector<RankReport> run_as_threads(const RanksOptions& options, const RankBody& body) {
  const auto num_ranks = static_cast<std::size_t>(options.num_ranks);
  std::vector<RankReport> reports(num_ranks);
  auto bootstraps = make_in_process_bootstraps(options.num_ranks);
  if (!bootstraps.ok()) {
    for (RankReport& report : reports) report.failures.push_back(bootstraps.status().to_string());
    return reports;
  }
  install_stack_dump();
  std::vector<RankStep> steps(num_ranks);
  const Watchdog watchdog(options.limit, steps);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back(
        [&, rank] { reports[rank] = run_body(*(*bootstraps)[rank], steps[rank], body); });
  }
  for (std::thread& thread : threads) thread.join();
  return reports;
}

}  // namespace

const char* name_of(Launch launch) { return launch == Launch::kThreads ? "threads" : "forks"; }

void RankContext::step(const char* what, std::int64_t number) {
  step_.what.store(what, std::memory_order_relaxed);
  step_.number.store(number, std::memory_order_relaxed);
}

void RankContext::fail(std::string_view finding) {
  if (failures_.size() >= kMaxFailures) return;
  failures_.push_back("at " + std::string(step_.what.load(std::memory_order_relaxed)) + " " +
                      std::to_string(step_.number.load(std::memory_order_relaxed)) + ": " +
                      std::string(finding));
}

bool RankContext::expect(bool condition, std::string_view finding) {
  if (!condition) fail(finding);
  return condition;
}

bool RankContext::expect_nothing(const std::string& finding, std::string_view where) {
  return expect(finding.empty(), std::string(where) + ": " + finding);
}

bool RankContext::expect_ok(const Status& status, std::string_view what) {
  return expect(status.ok(), std::string(what) + ": " + status.to_string());
}

RankReport run_body(Bootstrap& bootstrap, RankStep& step, const RankBody& body) {
  RankContext context(bootstrap, step);
  try {
    body(context);
  } catch (const std::exception& error) {
    context.fail(std::string("exception: ") + error.what());
  }
  context.step("done");
  return context.take_report();
}

std::string describe_steps(std::span<const RankStep> steps) {
  std::string text;
  for (std::size_t rank = 0; rank < steps.size(); ++rank) {
    text += "rank " + std::to_string(rank) + ": " +
            steps[rank].what.load(std::memory_order_relaxed) + " " +
            std::to_string(steps[rank].number.load(std::memory_order_relaxed)) + "\n";
  }
  return text;
}

std::vector<RankReport> run_ranks(const RanksOptions& options, const RankBody& body) {
  if (options.launch == Launch::kThreads) return run_as_threads(options, body);
  if (test_backend() == Backend::kHost) return run_as_forks(options, body);
  // A process that has used CUDA cannot fork ranks that do: only tests that end a process insist.
  if (!options.while_running) return run_as_threads(options, body);
  EP_CHECK(!Device::is_any_open(), "on GPUs this test needs a process of its own: --gtest_filter");
  return run_as_forks(options, body);
}

void expect_fine(const std::vector<RankReport>& reports) {
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    for (const std::string& failure : reports[rank].failures)
      ADD_FAILURE() << "rank " << rank << " " << failure;
    if (reports[rank].exit_signal != 0) {
      ADD_FAILURE() << "rank " << rank << " was ended by signal " << reports[rank].exit_signal;
    }
  }
}

std::vector<RankReport> check_ranks(const RanksOptions& options, const RankBody& body) {
  auto reports = run_ranks(options, body);
  expect_fine(reports);
  return reports;
}

}  // namespace ep::test
