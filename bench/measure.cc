// SPDX-License-Identifier: Apache-2.0
// The loops of a run.
#include "bench/measure.h"

#include "base/check.h"
#include "bench/progress.h"

#include <algorithm>
#include <utility>

namespace ep::bench {
namespace {

using Clock = std::chrono::steady_clock;

/// Ranks fill and check different numbers of rows: so much longer may one be away between
/// operations.
constexpr std::chrono::seconds kCheckTime{120};

double micros_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

class Measurement {
 public:
  Measurement(const Job& job, RankScope& scope, Workload& workload, MemcpyBaseline& baseline)
      : options_(job.options),
        scope_(scope),
        workload_(workload),
        baseline_(baseline),
        num_checked_(std::max(workload.steps().num_steps(), workload.num_sets())),
        // A text or random routing goes on for ever: its first step stands for the run, so that the
        // hash does not depend on the number of buffers.
        num_hashed_(job.trace ? workload.steps().num_steps() : 1),
        progress_(std::int64_t{num_checked_} + options_.warmup + options_.iters, scope.rank == 0) {}

  Status run() {
    for (int i = 0; i < num_checked_; ++i) EP_TRY(check_step(i));
    EP_TRY(meet_after_checks());
    for (int i = 0; i < options_.warmup; ++i) EP_TRY(iterate(i));
    result_.timings = {};
    for (int i = 0; i < options_.iters; ++i) {
      // The last results of every set are checked: they are what was timed.
      if (i >= options_.iters - workload_.num_sets()) workload_.poison(set_of(i));
      EP_TRY(iterate(i));
    }
    return check_last();
  }

  RankResult take_result() {
    result_.received_hash = received_hash_.value();
    result_.output_hash = output_hash_.value();
    return std::move(result_);
  }

 private:
  bool has_dispatch() const { return options_.command != Command::kCombine; }
  bool has_combine() const { return options_.command != Command::kDispatch; }
  int set_of(int iteration) const { return iteration % workload_.num_sets(); }
  int step_of(int iteration) const { return iteration % workload_.steps().num_steps(); }

  Status meet() { return scope_.meeting.wait(options_.timeout); }
  Status meet_after_checks() { return scope_.meeting.wait(options_.timeout + kCheckTime); }

  /// One step in full, every row checked.
  Status check_step(int iteration) {
    const int set = set_of(iteration);
    workload_.fill_input(set, step_of(iteration));
    workload_.poison(set);
    workload_.release_received(set);
    EP_TRY(meet_after_checks());
    EP_TRY(workload_.dispatch(set, step_of(iteration)));
    if (iteration == 0) describe_first_step(set);
    if (iteration < num_hashed_) workload_.add_received(set, received_hash_);
    result_.received.add(workload_.check_received(set));
    if (has_combine()) {
      workload_.run_experts(set);
      EP_TRY(meet_after_checks());
      EP_TRY(workload_.combine(set));
      if (iteration < num_hashed_) workload_.add_output(set, output_hash_);
      result_.output.add(workload_.check_output(set));
    }
    progress_.advance();
    return {};
  }

  void describe_first_step(int set) {
    result_.num_tokens = workload_.steps().num_tokens(0);
    result_.num_received = workload_.num_received(set);
    result_.expert_counts = workload_.expert_counts(set);
  }

  Status iterate(int iteration) {
    const int set = set_of(iteration);
    if (has_dispatch()) workload_.release_received(set);
    EP_TRY(meet());
    const Clock::time_point start = Clock::now();
    if (has_dispatch()) {
      EP_TRY(workload_.dispatch(set, step_of(iteration)));
      result_.timings.dispatch.push_back(micros_since(start));
    }
    if (options_.command == Command::kMoe) {
      workload_.run_experts(set);
      EP_TRY(meet());
    }
    if (has_combine()) {
      const Clock::time_point combine_start = Clock::now();
      EP_TRY(workload_.combine(set));
      result_.timings.combine.push_back(micros_since(combine_start));
    }
    if (options_.command == Command::kMoe) result_.timings.layer.push_back(micros_since(start));
    EP_TRY(copy_as_much(iteration));
    progress_.advance();
    return {};
  }

  /// The baseline moves what the iteration's operations moved.
  Status copy_as_much(int iteration) {
    Timings& timings = result_.timings;
    const bool by_rows = iteration % 2 == 0;
    const RowPlaces::Traffic& traffic =
        workload_.steps().traffic(workload_.step_of(set_of(iteration)));
    MemcpyBaseline::Copy copy = {.pieces = by_rows ? CopyPieces::kRows : CopyPieces::kWhole,
                                 .num_rows = traffic.rows};
    if (has_dispatch()) {
      copy.direction = CopyDirection::kIntoArena;
      copy.row_bytes = options_.hidden * size_of(options_.dtype);
      EP_TRY(time_copy(copy, iteration, by_rows ? timings.copy_in_rows : timings.copy_in_whole));
    }
    if (has_combine()) {
      copy.direction = CopyDirection::kFromArena;
      copy.row_bytes = options_.hidden * size_of(expert_dtype_of(options_.dtype));
      EP_TRY(time_copy(copy, iteration, by_rows ? timings.copy_out_rows : timings.copy_out_whole));
    }
    return {};
  }

  Status time_copy(const MemcpyBaseline::Copy& copy, int iteration, std::vector<double>& samples) {
    EP_TRY(meet());
    const Clock::time_point start = Clock::now();
    baseline_.run(copy, iteration);
    samples.push_back(micros_since(start));
    return {};
  }

  Status check_last() {
    const int num_sets = std::min(workload_.num_sets(), options_.iters);
    for (int i = options_.iters - num_sets; i < options_.iters; ++i) {
      if (has_dispatch()) result_.received.add(workload_.check_received(set_of(i)));
      if (has_combine()) result_.output.add(workload_.check_output(set_of(i)));
    }
    return meet_after_checks();
  }

  const Options& options_;
  RankScope& scope_;
  Workload& workload_;
  MemcpyBaseline& baseline_;
  int num_checked_;
  int num_hashed_;
  Progress progress_;
  Fingerprint received_hash_;
  Fingerprint output_hash_;
  RankResult result_;
};

}  // namespace

Result<RankResult> measure(
    const Job& job, RankScope& scope, Group& group, Workload& workload, MemcpyBaseline& baseline) {
  Measurement measurement(job, scope, workload, baseline);
  EP_TRY(measurement.run());
  RankResult result = measurement.take_result();
  const StepTable& steps = workload.steps();
  for (int step = 0; step < steps.num_steps(); ++step) {
    result.rows_per_step += static_cast<double>(steps.traffic(step).rows) / steps.num_steps();
    result.crossing_per_step +=
        static_cast<double>(steps.traffic(step).crossing) / steps.num_steps();
  }
  result.arena_bytes = group.arena_bytes();
  return result;
}

}  // namespace ep::bench
