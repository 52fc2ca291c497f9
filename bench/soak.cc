// SPDX-License-Identifier: Apache-2.0
// Rounds are queued and checked on the stream; the host only looks at the tally now and then.
#include "bench/soak.h"

#include "base/check.h"
#include "bench/hash.h"
#include "bench/progress.h"
#include "bench/rank_bench.h"
#include "bench/report.h"

#include <chrono>
#include <ostream>

namespace ep::bench {
namespace {

/// Less than a stream holds: a launch that waits for room could hold up the ranks of other threads.
constexpr int kQueuedRounds = 16;
/// So many rounds in turn the same rank is the late one.
constexpr int kRoundsPerLaggard = 64;
constexpr std::uint64_t kMaxLagMicros = 300;
/// Ranks prepare for so much longer than an operation takes.
constexpr std::chrono::seconds kPrepareTime{120};

class Soak {
 public:
  Soak(const Job& job, RankScope& scope, Device& device, Workload& workload)
      : options_(job.options),
        scope_(scope),
        device_(device),
        workload_(workload),
        progress_(options_.iters, scope.rank == 0) {}

  Status run() {
    for (int set = 0; set < workload_.num_sets(); ++set) EP_TRY(prepare(set));
    EP_TRY(scope_.meeting.wait(options_.timeout + kPrepareTime));
    for (int round = 0; round < options_.iters; ++round) {
      EP_TRY(run_round(round));
      if (round % kQueuedRounds == kQueuedRounds - 1) EP_TRY(workload_.settle());
      progress_.advance();
    }
    EP_TRY(workload_.settle());
    return take_tally();
  }

  RankResult take_result() { return std::move(result_); }

 private:
  int step_of(int set) const { return set % workload_.steps().num_steps(); }

  /// Experts' rows of a set stay as they are: its routing and its tokens do not change.
  Status prepare(int set) {
    EP_TRY(workload_.fill_input(set, step_of(set)));
    EP_TRY(scope_.meeting.wait(options_.timeout + kPrepareTime));
    EP_TRY(workload_.dispatch(set, step_of(set)));
    EP_TRY(workload_.read_received(set));
    return workload_.run_experts(set);
  }

  /// Sometimes before the one operation, sometimes before the other, sometimes not at all.
  Status lag(int round, int operation) {
    constexpr std::uint64_t kLagsOneIn = 4;
    const int laggard = round / kRoundsPerLaggard % scope_.num_ranks;
    const std::uint64_t key = chain(chain(options_.seed, static_cast<std::uint64_t>(round)),
                                    static_cast<std::uint64_t>(operation));
    if (scope_.rank != laggard || key % kLagsOneIn != 0) return {};
    return device_.delay(std::chrono::microseconds(mix(key) % kMaxLagMicros));
  }

  Status run_round(int round) {
    const int set = round % workload_.num_sets();
    EP_TRY(workload_.poison(set));
    workload_.release_received(set);
    EP_TRY(lag(round, 0));
    EP_TRY(workload_.dispatch(set, step_of(set)));
    EP_TRY(check(round, set, &Soak::check_received));
    EP_TRY(lag(round, 1));
    EP_TRY(workload_.combine(set));
    return check(round, set, &Soak::check_output);
  }

  using Checker = Status (Soak::*)(int set, const DeviceCheck::Round& at);
  Status check(int round, int set, Checker checker) {
    DeviceCheck::Round at = workload_.device_round(set);
    at.round = round;
    return (this->*checker)(set, at);
  }
  Status check_received(int set, const DeviceCheck::Round& at) {
    if (DeviceCheck* on_device = workload_.device_check())
      return on_device->check_received(at, workload_.received(set));
    EP_TRY_ASSIGN(const RowCheck check, workload_.check_received(set));
    result_.received.add(check);
    return {};
  }
  Status check_output(int set, const DeviceCheck::Round& at) {
    if (DeviceCheck* on_device = workload_.device_check())
      return on_device->check_output(at, workload_.output(set));
    EP_TRY_ASSIGN(const RowCheck check, workload_.check_output(set));
    result_.output.add(check);
    return {};
  }

  Status take_tally() {
    DeviceCheck* on_device = workload_.device_check();
    if (on_device == nullptr) return {};
    EP_TRY_ASSIGN(result_.received, on_device->take_received());
    EP_TRY_ASSIGN(result_.output, on_device->take_output());
    return {};
  }

  const Options& options_;
  RankScope& scope_;
  Device& device_;
  Workload& workload_;
  Progress progress_;
  RankResult result_;
};

}  // namespace

Result<OpSummary> run_soak(const Job& job, RankScope& scope) {
  EP_TRY_ASSIGN(const auto bench,
                RankBench::create(job, plan_buffers(job), scope, Baseline::kNone));
  Soak soak(job, scope, bench->device(), bench->workload());
  EP_TRY(soak.run());
  RankResult result = soak.take_result();
  result.net_provider = bench->group().net_use().provider;
  EP_TRY_ASSIGN(const auto all,
                gather_results(result, scope.bootstrap, job.options.timeout + kPrepareTime));
  OpSummary summary;
  summary.name = name_of(Command::kSoak);
  summary.dtype = job.options.dtype;
  summary.provider = provider_of(all);
  for (const RankResult& rank : all) {
    summary.check.add(rank.received);
    summary.check.add(rank.output);
  }
  return summary;
}

void print_soak(const Job& job, const OpSummary& soak, std::ostream& out) {
  const Options& options = job.options;
  if (soak.check.wrong > 0) out << "first wrong row: " << soak.check.first_wrong << "\n";
  out << "soak: " << with_commas(options.iters) << " rounds of dispatch and combine, "
      << options.ranks << " ranks, " << with_commas(options.tokens)
      << " tokens per rank, one rank late\n";
  if (has_nodes(options)) {
    out << "nodes: " << nodes_text(options) << ", provider " << soak.provider.value_or("?") << "\n";
  }
  out << soak.check.checked << " rows checked, " << soak.check.wrong << " wrong\n";
  out.flush();
}

}  // namespace ep::bench
