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
      << "backends: host\n\n";
}

void print_machine(const HostInfo& host, std::ostream& out) {
  out << "machine\n  cpu            " << host.cpu << ", " << host.num_cpus << " usable";
  if (host.clock_mhz) out << ", " << static_cast<int>(*host.clock_mhz) << " MHz";
  out << "\n  last cache     " << with_commas(host.cache_bytes / kMiB) << " MiB\n  memory         "
      << with_commas(host.memory_bytes / kMiB) << " MiB\n  kernel         " << host.kernel
      << "\n\n";
}

void print_topology(const Options& options, std::ostream& out) {
  out << "topology\n  ranks          " << options.ranks << ", one team by load and store ("
      << (joins_launcher(options) ? "launcher" : name_of(options.launch))
      << ")\n  path           intranode, high throughput\n  channels       "
      << resolved_sms(options) << " per rank\n\n";
}

void print_arena(const ArenaPlan& arena, const BufferPlan& plan, std::ostream& out) {
  out << "arena of each rank, bytes (committed when first written)\n  control        "
      << with_commas(arena.control_bytes) << "\n  ring           " << with_commas(arena.ring_bytes)
      << "\n  pool           " << with_commas(arena.pool_bytes) << "  (" << plan.num_sets
      << " sets of at most " << with_commas(plan.max_rows) << " rows, " << plan.num_copy_sets
      << " of the memcpy)\n  total          " << with_commas(arena.total_bytes) << "\n";
  out.flush();
}

}  // namespace

Status run_info(const Job& job, std::ostream& out) {
  const BufferPlan plan = plan_buffers(job);
  EP_TRY_ASSIGN(const ArenaPlan arena, Group::plan(group_config_of(job, plan), job.options.ranks));
  print_versions(out);
  print_machine(job.host, out);
  print_topology(job.options, out);
  print_arena(arena, plan, out);
  Summary summary;
  OpSummary op;
  op.name = name_of(Command::kInfo);
  op.dtype = job.options.dtype;
  summary.ops.push_back(op);
  summary.arena_bytes = arena.total_bytes;
  return write_json(job, summary);
}

}  // namespace ep::bench
