// SPDX-License-Identifier: Apache-2.0
// JSON lines; the keys are a contract (bench/README.md).
#include "bench/file_bytes.h"
#include "bench/json_machine.h"
#include "bench/report.h"

#include <ep/group.h>
#include <ep/sm_budget.h>
#include <ep/version.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <ctime>
#include <optional>

namespace ep::bench {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

std::string hex_of(std::uint64_t value) {
  std::array<char, 24> text{};
  std::snprintf(text.data(), text.size(), "%016" PRIx64, value);
  return text.data();
}

void add_configuration(Json& line, const Job& job, const OpSummary& op) {
  const Options& options = job.options;
  line["op"] = op.name;
  line["backend"] = option_name_of(options.backend);
  line["ranks"] = options.ranks;
  line["lsa_size"] = lsa_size_of(options);
  line["net"] = has_nodes(options) ? Json(name_of(options.net)) : Json(nullptr);
  line["provider"] = or_null(op.provider ? op.provider : options.provider);
  line["chaos_seed"] = or_null(options.chaos_seed);
  line["tokens"] = options.tokens;
  line["hidden"] = options.hidden;
  line["topk"] = options.topk;
  line["experts"] = options.experts;
  line["dtype"] = option_name_of(op.dtype);
  line["layout"] = option_name_of(options.layout);
  line["sms"] = op.sms.value_or(planned_sms(job, Movement::kDispatch));
  line["mode"] = name_of(options.mode);
  line["routing"] = name_of(options.routing);
}

void add_figures(Json& line, const OpSummary& op) {
  const auto micros = [&op](double Stats::*value) {
    return op.micros ? Json((*op.micros).*value) : Json(nullptr);
  };
  line["median_us"] = micros(&Stats::median);
  line["p10_us"] = micros(&Stats::p10);
  line["p90_us"] = micros(&Stats::p90);
  line["p99_us"] = micros(&Stats::p99);
  line["logical_gbps"] = or_null(op.logical_gbps);
  line["moved_gbps"] = or_null(op.moved_gbps);
  line["fraction_of_memcpy"] = or_null(op.fraction_of_memcpy);
  line["physical_gbps"] = or_null(op.physical_gbps);
  line["fraction_of_ceiling"] = or_null(op.fraction_of_ceiling);
  line["host_us"] = or_null(op.host_us);
  line["net_bytes_per_token"] = or_null(op.net_bytes_per_token);
  line["predicted_net_bytes_per_token"] = or_null(op.predicted_net_bytes_per_token);
  line["rows_checked"] = op.check.checked;
  line["rows_wrong"] = op.check.wrong;
  line["output_hash"] = op.output_hash ? Json(hex_of(*op.output_hash)) : Json(nullptr);
}

void add_memory(Json& line, const Job& job, std::int64_t arena_bytes) {
  const auto plan = Group::plan(group_config_of(job, plan_buffers(job)), job.options.ranks);
  line["arena_bytes"] = arena_bytes;
  line["fixed_bytes"] = plan.ok() ? plan->control_bytes + plan->ring_bytes : 0;
  line["net_bytes"] = plan.ok() ? plan->net_bytes : 0;
}

}  // namespace

void add_machine(nlohmann::ordered_json& line, const Job& job) {
  line["date"] = utc_now();
  line["device"] = job.host.cpu;
  line["driver"] = nullptr;
  line["clocks"] = or_null(job.host.clock_mhz);
  if (job.gpus) {
    const GpuInfo& first = job.gpus->gpus.front();
    line["device"] = first.name;
    line["driver"] = job.gpus->driver;
    line["clocks"] = first.clock_mhz;
  }
  line["commit"] = std::string(git_commit());
}

int planned_sms(const Job& job, Movement movement) {
  const int of_process = SmBudget::process_default();
  const int chosen = job.options.sms.value_or(of_process);
  const int planned = chosen > 0 ? chosen : suggest_num_sms(op_shape_of(job.options, movement));
  return job.gpus ? std::min(planned, job.gpus->gpus.front().num_sms) : planned;
}

std::string json_line(const Job& job, const OpSummary& op, std::int64_t arena_bytes) {
  Json line;
  add_configuration(line, job, op);
  const std::optional<std::int64_t> capacity = plan_buffers(job).capacity;
  line["capacity"] = or_null(capacity);
  line["placement"] = name_of(job.options.placement);
  add_figures(line, op);
  add_memory(line, job, arena_bytes);
  add_machine(line, job);
  return line.dump();
}

std::string json_lines(const Job& job, const Summary& summary) {
  std::string lines;
  for (const OpSummary& op : summary.ops) lines += json_line(job, op, summary.arena_bytes) + "\n";
  return lines;
}

Status write_json_lines(const Options& options, const std::string& lines) {
  if (!options.json) return {};
  if (*options.json != "-") return write_file(*options.json, lines);
  std::fputs(lines.c_str(), stdout);
  std::fflush(stdout);
  return {};
}

}  // namespace ep::bench
