// SPDX-License-Identifier: Apache-2.0
// Prints what is known before anything runs.
#include "bench/info.h"

#include "base/check.h"
#include "bench/buffer_plan.h"
#include "bench/launch.h"
#include "bench/report.h"

#include <ep/group.h>
#include <ep/version.h>

#include <ostream>

namespace ep::bench {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

void print_versions(std::ostream& out) {
  out << "ep " << version() << ", commit " << git_commit() << ", compiler " << __VERSION__ << "\n"
      << "backends: host" << (has_cuda() ? ", cuda" : "") << "\n\n";
}

void print_machine(const HostInfo& host, std::ostream& out) {
  out << "machine\n  cpu            " << host.cpu << ", " << host.num_cpus << " usable";
  if (host.clock_mhz) out << ", " << static_cast<int>(*host.clock_mhz) << " MHz";
  out << "\n  last cache     " << with_commas(host.cache_bytes / kMiB) << " MiB\n  memory         "
      << with_commas(host.memory_bytes / kMiB) << " MiB\n  kernel         " << host.kernel
      << "\n\n";
}

/// "0: 1 2 3" are the GPUs that GPU 0 reaches.
void print_reaches(const GpuMachine& machine, std::ostream& out) {
  for (int gpu = 0; gpu < machine.num_gpus(); ++gpu) {
    out << "  gpu " << gpu << " reaches ";
    const std::vector<bool>& reaches = machine.reaches[static_cast<std::size_t>(gpu)];
    for (int peer = 0; peer < machine.num_gpus(); ++peer) {
      if (peer != gpu && reaches[static_cast<std::size_t>(peer)]) out << " " << peer;
    }
    out << "\n";
  }
}

void print_gpus(const GpuMachine& machine, std::ostream& out) {
  constexpr int kTens = 10;
  out << "gpus (driver " << machine.driver << ", runtime " << machine.runtime << ")\n";
  for (int gpu = 0; gpu < machine.num_gpus(); ++gpu) {
    const GpuInfo& info = machine.gpus[static_cast<std::size_t>(gpu)];
    out << "  gpu " << gpu << "          " << info.name << ", compute "
        << info.compute_capability / kTens << "." << info.compute_capability % kTens << ", "
        << info.num_sms << " SMs, " << with_commas(info.memory_bytes / kMiB) << " MiB, L2 "
        << info.cache_bytes / kMiB << " MiB, SMs at most " << static_cast<int>(info.clock_mhz)
        << " MHz, memory " << static_cast<int>(info.memory_clock_mhz) << " MHz\n";
  }
  print_reaches(machine, out);
  out << "\n";
}

void print_topology(const Job& job, std::ostream& out) {
  const Options& options = job.options;
  const bool is_host = options.backend == Backend::kHost;
  out << "topology\n  ranks          " << options.ranks << " ("
      << (joins_launcher(options) ? "launcher" : name_of(options.launch)) << ")\n  nodes          "
      << (has_nodes(options) ? nodes_text(options) : "one, all ranks by load and store")
      << "\n  path           " << (has_nodes(options) ? "internode" : "intranode")
      << ", high throughput\n"
      << (is_host ? "  channels       " : "  SMs            ")
      << planned_sms(job, Movement::kDispatch) << " per rank for a dispatch, "
      << planned_sms(job, Movement::kCombine) << " for a combine\n\n";
}

void print_arena(const ArenaPlan& arena, const BufferPlan& plan, std::ostream& out) {
  out << "arena of each rank, bytes (committed when first written)\n  control        "
      << with_commas(arena.control_bytes) << "\n  ring           " << with_commas(arena.ring_bytes)
      << "\n  net            " << with_commas(arena.net_bytes) << "\n  pool           "
      << with_commas(arena.pool_bytes) << "  (" << plan.num_sets << " sets of at most "
      << with_commas(plan.max_rows) << " rows, " << plan.num_copy_sets
      << " of the memcpy)\n  total          " << with_commas(arena.total_bytes) << "\n";
  out.flush();
}

}  // namespace

Status run_info(const Job& shared_job, std::ostream& out) {
  Job job = shared_job;
  if (job.options.backend == Backend::kCuda) {
    EP_TRY_ASSIGN(job.gpus, read_gpus());
  }
  const BufferPlan plan = plan_buffers(job);
  EP_TRY_ASSIGN(const ArenaPlan arena, Group::plan(group_config_of(job, plan), job.options.ranks));
  print_versions(out);
  print_machine(job.host, out);
  if (job.gpus) print_gpus(*job.gpus, out);
  print_topology(job, out);
  print_arena(arena, plan, out);
  Summary summary;
  OpSummary op;
  op.name = name_of(Command::kInfo);
  op.dtype = job.options.dtype;
  summary.ops.push_back(op);
  summary.arena_bytes = arena.total_bytes;
  return write_json_lines(job.options, json_lines(job, summary));
}

}  // namespace ep::bench
