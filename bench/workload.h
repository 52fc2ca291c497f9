// SPDX-License-Identifier: Apache-2.0
// The layer of one rank: its buffers, its dispatch, experts and combine, and their checks.
#pragma once

#include "bench/buffer_plan.h"
#include "bench/hash.h"
#include "bench/host_buffer.h"
#include "bench/job.h"
#include "bench/moe_layer.h"
#include "bench/reference.h"
#include "bench/row_check.h"
#include "bench/step_table.h"

#include <ep/group.h>
#include <ep/moe.h>
#include <ep/status.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace ep::bench {

/// Steps are routings; sets are buffers. Any step can run in any set, and a set keeps its results
/// until it runs again.
class Workload {
 public:
  /// Local. `job` and `group` outlive the workload. Errors as Group::allocate.
  static Result<std::unique_ptr<Workload>> create(const Job& job,
                                                  const BufferPlan& plan,
                                                  Group& group);

  int num_sets() const { return static_cast<int>(sets_.size()); }
  const StepTable& steps() const { return steps_; }
  /// Step that the set ran last.
  int step_of(int set) const { return at(set).step; }

  /// Makes the rows of a step the input of a set.
  void fill_input(int set, int step);

  /// Collective. Routes the set's input as `step` says.
  Status dispatch(int set, int step);
  /// Local: applies this rank's experts to what the set's dispatch delivered.
  void run_experts(int set);
  /// Collective: brings the experts' rows back.
  Status combine(int set);

  /// Overwrites the set's results, so that a row that is not written again is noticed.
  void poison(int set);
  /// Gives the received tensors back: the next dispatch of the set can have their memory.
  void release_received(int set);

  RowCheck check_received(int set);
  RowCheck check_output(int set);

  void add_received(int set, Fingerprint& fingerprint) const;
  void add_output(int set, Fingerprint& fingerprint) const;

  /// Rows that the set's dispatch delivered to each local expert.
  std::vector<std::int64_t> expert_counts(int set) const;
  /// Rows of the set's receive tensors in use, padding included.
  std::int64_t num_received(int set) const;

 private:
  struct Set {
    HostBuffer x;
    HostBuffer scales;
    HostBuffer out;
    Tensor arena_rows;  // of the experts, in the one or the other
    HostBuffer outside_rows;
    std::optional<DispatchOutput> received;
    int rows_step = -1;  // whose rows x holds
    int step = 0;        // whose routing ran last
  };

  Workload(const Job& job, const BufferPlan& plan, Group& group, const ExpertMap& map);

  const Set& at(int set) const { return sets_[static_cast<std::size_t>(set)]; }
  Set& at(int set) { return sets_[static_cast<std::size_t>(set)]; }
  Result<Set> make_set() const;
  DispatchInput dispatch_input(const Set& set, int step) const;
  std::byte* expert_rows(const Set& set) const;

  const Options& options_;
  BufferPlan plan_;
  Group& group_;
  RowSource rows_;
  StepTable steps_;
  std::vector<ExpertFunction> experts_;
  LocalExperts local_experts_;
  Reference reference_;
  std::vector<DispatchHandle> handles_;  // by step, of RoutingReuse::kCached
  std::vector<Set> sets_;
};

}  // namespace ep::bench
