// SPDX-License-Identifier: Apache-2.0
// Everything that one rank needs for measuring, in the order in which it must go.
#pragma once

#include "bench/measure.h"

#include <ep/group.h>
#include <ep/status.h>

#include <memory>

namespace ep::bench {

enum class Baseline : std::uint8_t { kMemcpy, kNone };

class RankBench {
 public:
  /// Collective. `job` and `scope` outlive the bench. A GPU has no memcpy beside it. Errors as
  /// Group::create, Workload::create and make_device.
  static Result<std::unique_ptr<RankBench>> create(const Job& job,
                                                   const BufferPlan& plan,
                                                   RankScope& scope,
                                                   Baseline baseline);

  const Group& group() const { return *group_; }
  Device& device() const { return *device_; }
  Workload& workload() const { return *workload_; }
  /// Collective. Errors as bench::measure().
  Result<RankResult> measure(FirstChecks first_checks) const;

 private:
  RankBench(const Job& job, RankScope& scope) : job_(job), scope_(scope) {}

  const Job& job_;
  RankScope& scope_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Group> group_;
  std::unique_ptr<MemcpyBaseline> baseline_;
  std::unique_ptr<Workload> workload_;
};

}  // namespace ep::bench
