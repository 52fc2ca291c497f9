// SPDX-License-Identifier: Apache-2.0
// What every rank does, and the report of rank 0.
#include "bench/run.h"

#include "base/check.h"
#include "bench/file_bytes.h"
#include "bench/info.h"
#include "bench/launch.h"
#include "bench/model.h"
#include "bench/net.h"
#include "bench/node_traffic.h"
#include "bench/p2p.h"
#include "bench/plot.h"
#include "bench/rank_bench.h"
#include "bench/report.h"
#include "bench/soak.h"
#include "bench/sweep.h"

#include <iostream>
#include <optional>
#include <string>

namespace ep::bench {
namespace {

/// With --json - stdout belongs to the JSON lines.
std::ostream& report_stream(const Options& options) {
  return options.json == "-" ? std::cerr : std::cout;
}

/// How many ranks a launcher has started is known only now.
Result<Job> job_of_scope(const Job& job, const RankScope& scope) {
  if (job.trace && scope.num_ranks != job.trace->num_ranks) {
    return Status(Errc::kInvalidArgument, std::to_string(scope.num_ranks) +
                                              " ranks, but the trace has " +
                                              std::to_string(job.trace->num_ranks));
  }
  Job own = job;
  own.options.ranks = scope.num_ranks;
  EP_TRY(validate(own.options));
  EP_TRY(validate_topology(own.options));
  if (own.options.backend == Backend::kCuda) {
    EP_TRY_ASSIGN(own.gpus, read_gpus());
  }
  return own;
}

/// The exit code of a run whose operations all succeeded.
Result<ExitCode> run_and_report(const Job& shared_job, RankScope& scope) {
  EP_TRY_ASSIGN(const Job job, job_of_scope(shared_job, scope));
  const BufferPlan plan = plan_buffers(job);
  EP_TRY_ASSIGN(const auto bench, RankBench::create(job, plan, scope, Baseline::kMemcpy));
  EP_TRY_ASSIGN(const RankResult mine, bench->measure(FirstChecks::kAllRows));
  EP_TRY_ASSIGN(const auto results, gather_results(mine, scope.bootstrap, job.options.timeout));
  Summary summary = summarise(job.options, results, job.ceilings);
  if (scope.rank == 0) {
    EP_TRY(add_node_traffic(job, results, summary));
    print_report(job, plan, results, summary, report_stream(job.options));
    EP_TRY(write_json_lines(job.options, json_lines(job, summary)));
  }
  return summary.has_wrong_row() ? ExitCode::kWrongRow : ExitCode::kRight;
}

Result<ExitCode> sweep_and_report(const Job& shared_job, RankScope& scope) {
  EP_TRY_ASSIGN(const Job job, job_of_scope(shared_job, scope));
  EP_TRY_ASSIGN(const SweepResult result, run_sweep(job, scope));
  if (scope.rank == 0) {
    print_sweep(job, result, report_stream(job.options));
    EP_TRY(write_json_lines(job.options, result.json_lines));
    if (job.options.plot) EP_TRY(plot_lines(result.json_lines, *job.options.plot));
  }
  return result.has_wrong_row() ? ExitCode::kWrongRow : ExitCode::kRight;
}

Result<ExitCode> soak_and_report(const Job& shared_job, RankScope& scope) {
  EP_TRY_ASSIGN(const Job job, job_of_scope(shared_job, scope));
  EP_TRY_ASSIGN(const OpSummary soak, run_soak(job, scope));
  if (scope.rank == 0) {
    print_soak(job, soak, report_stream(job.options));
    EP_TRY(write_json_lines(job.options, json_line(job, soak, 0) + "\n"));
  }
  return soak.check.wrong > 0 ? ExitCode::kWrongRow : ExitCode::kRight;
}

Result<ExitCode> net_and_report(const Job& shared_job, RankScope& scope) {
  EP_TRY_ASSIGN(const Job job, job_of_scope(shared_job, scope));
  EP_TRY_ASSIGN(const NetResult result, measure_net(job, scope));
  if (scope.rank == 0) {
    print_net(result, report_stream(job.options));
    EP_TRY(write_json_lines(job.options, net_json_lines(job, result)));
  }
  return result.messages_wrong > 0 ? ExitCode::kWrongRow : ExitCode::kRight;
}

Result<ExitCode> run_command(const Job& job, RankScope& scope) {
  switch (job.options.command) {
    case Command::kSweep:
      return sweep_and_report(job, scope);
    case Command::kNet:
      return net_and_report(job, scope);
    case Command::kSoak:
      return soak_and_report(job, scope);
    default:
      return run_and_report(job, scope);
  }
}

ExitCode rank_main(const Job& job, RankScope& scope) {
  const Result<ExitCode> code = run_command(job, scope);
  if (code.ok()) return *code;
  scope.meeting.leave();
  std::string message = code.status().to_string();
  const std::string obituary = scope.meeting.obituary();
  // The message of the barrier has it already; an empty one is part of every message.
  if (message.find(obituary) == std::string::npos) message += " (" + obituary + ")";
  print_rank_error(scope.rank, message);
  return exit_code_of(code.status());
}

ExitCode fail(const Status& status) {
  std::cerr << "ep-bench: " << status.to_string() << std::endl;
  return exit_code_of(status);
}

/// Files that cannot be written are found before the run, not after it.
Status claim_outputs(const Job& job) {
  const std::optional<std::string>& json = job.options.json;
  if (json && *json != "-") EP_TRY(write_file(*json, ""));
  if (job.options.plot) EP_TRY(check_plotting());
  if (!job.options.record) return {};
  const auto routing = job.make_routing();
  const int num_steps = routing->num_recorded_steps().value_or(plan_buffers(job).num_sets);
  return write_trace(record_trace(*routing, num_steps), *job.options.record);
}

using RunAlone = Status (*)(const Job&, std::ostream&);

/// Of a command that starts no ranks, else null.
RunAlone run_alone_of(Command command) {
  switch (command) {
    case Command::kInfo:
      return run_info;
    case Command::kP2p:
      return run_p2p;
    case Command::kModel:
      return run_model;
    default:
      return nullptr;
  }
}

}  // namespace

ExitCode run(const Options& options) {
  const Result<Job> job = make_job(options);
  if (!job.ok()) return fail(job.status());
  if (const Status status = claim_outputs(*job); !status.ok()) return fail(status);
  if (const RunAlone run_alone = run_alone_of(options.command)) {
    const Status status = run_alone(*job, report_stream(options));
    return status.ok() ? ExitCode::kRight : fail(status);
  }
  return launch_ranks(job->options, [&](RankScope& scope) { return rank_main(*job, scope); });
}

}  // namespace ep::bench
