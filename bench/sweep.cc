// SPDX-License-Identifier: Apache-2.0
// Keeps group and inputs while only the budget changes.
#include "bench/sweep.h"

#include "base/check.h"
#include "bench/rank_bench.h"
#include "bench/report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ostream>

namespace ep::bench {
namespace {

/// An empty one: what the group takes by itself.
std::vector<std::optional<int>> budgets_of(const Options& options) {
  if (options.sms_list.empty()) return {options.sms};
  return {options.sms_list.begin(), options.sms_list.end()};
}

Job point_job(const Job& job, std::int64_t tokens, std::optional<int> sms) {
  Job point = job;
  point.options.command = job.options.swept;
  point.options.tokens = tokens;
  point.options.sms = sms;
  return point;
}

Result<Summary> measure_point(const Job& point,
                              RankBench& bench,
                              RankScope& scope,
                              FirstChecks first_checks) {
  bench.workload().set_sms(point.options.sms);
  EP_TRY_ASSIGN(const RankResult mine, bench.measure(first_checks));
  EP_TRY_ASSIGN(const auto all, gather_results(mine, scope.bootstrap, point.options.timeout));
  Summary summary = summarise(point.options, all, point.ceilings);
  // A combine needs a dispatch, which no line shows otherwise.
  if (point.options.command == Command::kCombine) {
    for (const RankResult& rank : all) summary.ops.front().check.add(rank.received);
  }
  return summary;
}

Status sweep_budgets(const Job& job, std::int64_t tokens, RankScope& scope, SweepResult& result) {
  const std::vector<std::optional<int>> budgets = budgets_of(job.options);
  const Job largest = point_job(job, tokens, *std::max_element(budgets.begin(), budgets.end()));
  const BufferPlan plan = plan_buffers(largest);
  EP_TRY_ASSIGN(const auto bench, RankBench::create(largest, plan, scope, Baseline::kNone));
  FirstChecks first_checks = FirstChecks::kAllRows;
  for (const std::optional<int> sms : budgets) {
    const Job point = point_job(job, tokens, sms);
    EP_TRY_ASSIGN(Summary summary, measure_point(point, *bench, scope, first_checks));
    result.json_lines += json_lines(point, summary);
    const int in_force = summary.ops.front().sms.value_or(0);
    result.points.push_back({.tokens = tokens, .sms = in_force, .summary = std::move(summary)});
    first_checks = FirstChecks::kNone;
  }
  return {};
}

std::string number(std::optional<double> value, const char* pattern) {
  std::array<char, 32> text{};
  if (!value) return "         -";
  std::snprintf(text.data(), text.size(), pattern, *value);
  return text.data();
}

}  // namespace

bool SweepResult::has_wrong_row() const {
  return std::any_of(points.begin(), points.end(),
                     [](const SweepPoint& point) { return point.summary.has_wrong_row(); });
}

Result<SweepResult> run_sweep(const Job& job, RankScope& scope) {
  SweepResult result;
  std::vector<std::int64_t> tokens = job.options.tokens_list;
  if (tokens.empty()) tokens = {job.options.tokens};
  for (std::int64_t count : tokens) EP_TRY(sweep_budgets(job, count, scope, result));
  return result;
}

void print_sweep(const Job& job, const SweepResult& result, std::ostream& out) {
  out << "sweep of " << name_of(job.options.swept) << " on " << option_name_of(job.options.backend)
      << ", mode " << name_of(job.options.mode) << "\n  tokens  SMs median us    p10 us    p90 us"
      << "   logical     moved  physical   ceiling   host us      rows     wrong\n";
  for (const SweepPoint& point : result.points) {
    const OpSummary& op = point.summary.ops.front();
    std::array<char, 32> head{};
    std::snprintf(head.data(), head.size(), "%8lld %4d", static_cast<long long>(point.tokens),
                  point.sms);
    const Stats micros = op.micros.value_or(Stats());
    out << head.data() << number(micros.median, "%10.1f") << number(micros.p10, "%10.1f")
        << number(micros.p90, "%10.1f") << number(op.logical_gbps, "%10.1f")
        << number(op.moved_gbps, "%10.1f") << number(op.physical_gbps, "%10.1f")
        << number(op.fraction_of_ceiling, "%10.3f") << number(op.host_us, "%10.1f")
        << number(static_cast<double>(op.check.checked), "%10.0f")
        << number(static_cast<double>(op.check.wrong), "%10.0f") << "\n";
    if (op.check.wrong > 0) out << "  first wrong row: " << op.check.first_wrong << "\n";
  }
  out.flush();
}

}  // namespace ep::bench
