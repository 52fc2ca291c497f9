// SPDX-License-Identifier: Apache-2.0
// Runs a function on several ranks, as threads or as processes; a hang is a failed test, not a lost
// job.
#pragma once

#include "tests/support/test_scale.h"

#include <ep/bootstrap.h>
#include <ep/status.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace ep::test {

enum class Launch : std::uint8_t {
  kThreads,  ///< make_in_process_bootstraps
  kForks,    ///< one process each, make_tcp_bootstrap over an abstract socket of a private job id
};
const char* name_of(Launch launch);

/// What a rank does now; lies in memory that the watchdog can read, also from another process.
struct RankStep {
  std::atomic<const char*> what{"starting"};
  std::atomic<std::int64_t> number{0};
};

/// What came back from a rank.
struct RankReport {
  std::vector<std::string> failures{};
  std::vector<std::byte> bytes{};  ///< whatever the rank put into RankContext::bytes
  int exit_signal = 0;             ///< kForks: the signal that ended the process, 0 if it exited
};

/// A rank's view of the run.
class RankContext {
 public:
  RankContext(Bootstrap& bootstrap, RankStep& step) : bootstrap_(bootstrap), step_(step) {}

  int rank() const { return bootstrap_.rank(); }
  int num_ranks() const { return bootstrap_.num_ranks(); }
  Bootstrap& bootstrap() { return bootstrap_; }

  /// For the report of a hang. `what` must be a literal.
  void step(const char* what, std::int64_t number = 0);
  /// The rank goes on, the test fails. Only the first kMaxFailures are kept.
  void fail(std::string_view finding);
  /// Records `finding` unless the condition holds; returns the condition.
  bool expect(bool condition, std::string_view finding);
  /// Records an empty finding as success, anything else as failure.
  bool expect_nothing(const std::string& finding, std::string_view where);
  bool expect_ok(const Status& status, std::string_view what);

  std::vector<std::byte> bytes;
  RankReport take_report() { return {.failures = std::move(failures_), .bytes = std::move(bytes)}; }

 private:
  static constexpr std::size_t kMaxFailures = 8;

  Bootstrap& bootstrap_;
  RankStep& step_;
  std::vector<std::string> failures_;
};

using RankBody = std::function<void(RankContext&)>;

struct RanksOptions {
  int num_ranks = 2;
  Launch launch = Launch::kThreads;
  /// Then the watchdog dumps steps and stacks; processes are killed, and a process of threads
  /// aborts.
  std::chrono::seconds limit{60 * kSanitizerSlowdown};
  /// kForks: called in the parent once all processes run.
  std::function<void(std::span<const pid_t>)> while_running{};
};

/// Every rank's report, in rank order. With kForks the caller must have no other thread.
std::vector<RankReport> run_ranks(const RanksOptions& options, const RankBody& body);

/// Fails the current test with every finding of every rank.
void expect_fine(const std::vector<RankReport>& reports);

/// run_ranks and expect_fine.
std::vector<RankReport> check_ranks(const RanksOptions& options, const RankBody& body);

}  // namespace ep::test
