// SPDX-License-Identifier: Apache-2.0
// Makes device, group and workload of a rank.
#include "bench/rank_bench.h"

#include "base/check.h"
#include "bench/report.h"

namespace ep::bench {

Result<std::unique_ptr<RankBench>> RankBench::create(const Job& job,
                                                     const BufferPlan& plan,
                                                     RankScope& scope,
                                                     Baseline baseline) {
  auto bench = std::unique_ptr<RankBench>(new RankBench(job, scope));
  EP_TRY_ASSIGN(bench->device_, make_device(job.options.backend, scope.rank));
  EP_TRY_ASSIGN(bench->group_, Group::create(scope.bootstrap, group_config_of(job, plan)));
  EP_TRY_ASSIGN(bench->workload_, Workload::create(job, plan, *bench->device_, *bench->group_));
  if (baseline == Baseline::kNone || !bench->device_->is_host()) return bench;
  const MemcpyBaseline::Config config = {.max_bytes = plan.max_copy_bytes,
                                         .num_sets = plan.num_copy_sets,
                                         .num_threads = planned_sms(job, Movement::kDispatch)};
  EP_TRY_ASSIGN(bench->baseline_, MemcpyBaseline::create(*bench->group_, config));
  return bench;
}

Result<RankResult> RankBench::measure(FirstChecks first_checks) const {
  return bench::measure({.job = job_,
                         .scope = scope_,
                         .group = *group_,
                         .device = *device_,
                         .workload = *workload_,
                         .baseline = baseline_.get()},
                        first_checks);
}

}  // namespace ep::bench
