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
  Measurement(const Bench& bench, FirstChecks first_checks)
      : options_(bench.job.options),
        scope_(bench.scope),
        group_(bench.group),
        device_(bench.device),
        workload_(bench.workload),
        baseline_(bench.baseline),
        first_checks_(first_checks),
        is_queued_(!device_.is_host() && plan_buffers(bench.job).capacity.has_value()),
        num_checked_(std::max(workload_.steps().num_steps(), workload_.num_sets())),
        // A text or random routing goes on for ever: its first step stands for the run, so that the
        // hash does not depend on the number of buffers.
        num_hashed_(bench.job.trace ? workload_.steps().num_steps() : 1),
        progress_(std::int64_t{num_checked_} + options_.warmup + options_.iters,
                  bench.scope.rank == 0) {}

  Status run() {
    for (int i = 0; i < num_checked_; ++i) EP_TRY(check_step(i));
    EP_TRY(meet_after_checks());
    for (int i = 0; i < options_.warmup; ++i) EP_TRY(iterate(i));
    result_.timings = {};
    result_.dispatch_puts = result_.combine_puts = {};
    for (int i = 0; i < options_.iters; ++i) {
      // The last results of every set are checked: they are what was timed.
      if (i >= options_.iters - workload_.num_sets()) EP_TRY(workload_.poison(set_of(i)));
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
  bool is_layer() const { return options_.command == Command::kMoe; }
  int set_of(int iteration) const { return iteration % workload_.num_sets(); }
  int step_of(int iteration) const { return iteration % workload_.steps().num_steps(); }

  Status meet() { return scope_.meeting.wait(options_.timeout); }
  Status meet_after_checks() { return scope_.meeting.wait(options_.timeout + kCheckTime); }

  /// One step in full, every row checked unless that has been done.
  Status check_step(int iteration) {
    const int set = set_of(iteration);
    EP_TRY(workload_.fill_input(set, step_of(iteration)));
    EP_TRY(workload_.poison(set));
    workload_.release_received(set);
    EP_TRY(meet_after_checks());
    EP_TRY(workload_.dispatch(set, step_of(iteration)));
    EP_TRY(examine_received(iteration));
    if (has_combine()) {
      if (first_checks_ == FirstChecks::kAllRows) EP_TRY(workload_.run_experts(set));
      EP_TRY(meet_after_checks());
      EP_TRY(workload_.combine(set));
      EP_TRY(examine_output(iteration));
    }
    progress_.advance();
    return {};
  }

  bool is_examined(int iteration) const {
    return first_checks_ == FirstChecks::kAllRows || iteration < num_hashed_;
  }

  Status examine_received(int iteration) {
    if (!is_examined(iteration)) return workload_.settle();
    const int set = set_of(iteration);
    const bool is_checked = first_checks_ == FirstChecks::kAllRows;
    const bool is_hashed = iteration < num_hashed_;
    if (is_hashed || (is_checked && has_combine())) EP_TRY(workload_.read_received(set));
    if (iteration == 0) describe_first_step(set);
    if (is_hashed) workload_.add_received(set, received_hash_);
    return is_checked ? add_received_check(set) : Status();
  }

  Status examine_output(int iteration) {
    if (!is_examined(iteration)) return workload_.settle();
    const int set = set_of(iteration);
    if (iteration < num_hashed_) {
      EP_TRY(workload_.read_output(set));
      workload_.add_output(set, output_hash_);
    }
    return first_checks_ == FirstChecks::kAllRows ? add_output_check(set) : Status();
  }

  Status add_received_check(int set) {
    EP_TRY_ASSIGN(const RowCheck check, workload_.check_received(set));
    result_.received.add(check);
    return {};
  }
  Status add_output_check(int set) {
    EP_TRY_ASSIGN(const RowCheck check, workload_.check_output(set));
    result_.output.add(check);
    return {};
  }

  void describe_first_step(int set) {
    result_.num_tokens = workload_.steps().num_tokens(0);
    result_.num_received = workload_.num_received(set);
    result_.expert_counts = workload_.expert_counts(set);
  }

  Status iterate(int iteration) {
    Timings& timings = result_.timings;
    const int set = set_of(iteration);
    double layer_micros = 0;
    if (has_dispatch()) {
      workload_.release_received(set);
      EP_TRY_ASSIGN(const OpTime time,
                    time_op([&] { return workload_.dispatch(set, step_of(iteration)); },
                            result_.dispatch_puts));
      add_time(time, timings.dispatch, timings.dispatch_host);
      layer_micros += time.micros;
    }
    if (is_layer()) EP_TRY(run_experts(set, layer_micros));
    if (has_combine()) {
      EP_TRY_ASSIGN(const OpTime time,
                    time_op([&] { return workload_.combine(set); }, result_.combine_puts));
      add_time(time, timings.combine, timings.combine_host);
      layer_micros += time.micros;
    }
    if (is_layer()) timings.layer.push_back(layer_micros);
    EP_TRY(copy_as_much(iteration));
    progress_.advance();
    return {};
  }

  Result<OpTime> time_op(const Call& call, PutCounts& puts) {
    const NetUse before = group_.net_use();
    EP_TRY_ASSIGN(
        const OpTime time,
        device_.time({.call = call, .meet = [this] { return meet(); }, .is_queued = is_queued_}));
    EP_TRY(workload_.settle());
    const NetUse after = group_.net_use();
    puts.bytes += after.put_bytes - before.put_bytes;
    puts.puts += after.puts - before.puts;
    puts.signals += after.signals - before.signals;
    return time;
  }

  void add_time(const OpTime& time, std::vector<double>& micros, std::vector<double>& host) const {
    micros.push_back(time.micros);
    if (time.host_micros && options_.mode == Mode::kEager) host.push_back(*time.host_micros);
  }

  /// The experts of a GPU's rows run here all the same, and their time says nothing.
  Status run_experts(int set, double& layer_micros) {
    EP_TRY(workload_.read_received(set));
    const Clock::time_point start = Clock::now();
    EP_TRY(workload_.run_experts(set));
    if (device_.is_host()) layer_micros += micros_since(start);
    return {};
  }

  /// The baseline moves what the iteration's operations moved.
  Status copy_as_much(int iteration) {
    if (baseline_ == nullptr) return {};
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
    baseline_->run(copy, iteration);
    samples.push_back(micros_since(start));
    return {};
  }

  Status check_last() {
    const int num_sets = std::min(workload_.num_sets(), options_.iters);
    for (int i = options_.iters - num_sets; i < options_.iters; ++i) EP_TRY(check_set(set_of(i)));
    return meet_after_checks();
  }

  Status check_set(int set) {
    if (has_dispatch()) EP_TRY(add_received_check(set));
    if (has_combine()) EP_TRY(add_output_check(set));
    return {};
  }

  const Options& options_;
  RankScope& scope_;
  Group& group_;
  Device& device_;
  Workload& workload_;
  MemcpyBaseline* baseline_;
  FirstChecks first_checks_;
  bool is_queued_;
  int num_checked_;
  int num_hashed_;
  Progress progress_;
  Fingerprint received_hash_;
  Fingerprint output_hash_;
  RankResult result_;
};

}  // namespace

Result<RankResult> measure(const Bench& bench, FirstChecks first_checks) {
  Measurement measurement(bench, first_checks);
  EP_TRY(measurement.run());
  RankResult result = measurement.take_result();
  const StepTable& steps = bench.workload.steps();
  const auto num_steps = static_cast<double>(steps.num_steps());
  for (int step = 0; step < steps.num_steps(); ++step) {
    const RowPlaces::Traffic& traffic = steps.traffic(step);
    result.rows_per_step += static_cast<double>(traffic.rows) / num_steps;
    result.crossing_per_step += static_cast<double>(traffic.crossing) / num_steps;
    result.wire_per_step += static_cast<double>(traffic.wire) / num_steps;
  }
  result.dispatch_sms = bench.workload.num_sms(Movement::kDispatch);
  result.combine_sms = bench.workload.num_sms(Movement::kCombine);
  result.arena_bytes = bench.group.arena_bytes();
  result.net_provider = bench.group.net_use().provider;
  return result;
}

}  // namespace ep::bench
