// SPDX-License-Identifier: Apache-2.0
// The layer of one rank: its buffers, its dispatch, experts and combine, and their checks.
#pragma once

#include "bench/buffer_plan.h"
#include "bench/device.h"
#include "bench/device_check.h"
#include "bench/hash.h"
#include "bench/host_buffer.h"
#include "bench/job.h"
#include "bench/mirrored_buffer.h"
#include "bench/moe_layer.h"
#include "bench/received_image.h"
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
/// until it runs again. Errors also as those of Device.
class Workload {
 public:
  /// Local. `job`, `device` and `group` outlive the workload. Errors as Group::allocate.
  static Result<std::unique_ptr<Workload>> create(const Job& job,
                                                  const BufferPlan& plan,
                                                  Device& device,
                                                  Group& group);

  int num_sets() const { return static_cast<int>(sets_.size()); }
  const StepTable& steps() const { return steps_; }
  /// Step that the set ran last.
  int step_of(int set) const { return at(set).step; }

  /// Budget of the calls from now on. Graphs are captured anew.
  void set_sms(std::optional<int> sms);
  /// What the group runs such a call with.
  int num_sms(Movement movement) const;

  /// Makes the rows of a step the input of a set.
  Status fill_input(int set, int step);

  /// Collective. Routes the set's input as `step` says; where graphs are wanted, the first call of
  /// a set captures one and later ones replay it. On a GPU the operation is only queued.
  Status dispatch(int set, int step);
  /// Local: applies this rank's experts to what the set's dispatch delivered and read_received()
  /// has read.
  Status run_experts(int set);
  /// Collective: brings the experts' rows back. Graphs as for dispatch().
  Status combine(int set);
  /// Waits for what is queued. Errors also as Group::status.
  Status settle();
  /// Make results readable: for the experts and the figures below.
  Status read_received(int set);
  Status read_output(int set);

  /// Overwrites the set's results, so that a row that is not written again is noticed.
  Status poison(int set);
  /// Gives the received tensors back: the next dispatch of the set can have their memory.
  void release_received(int set);

  /// Where the results lie, if the device can check; what is wrong there is described here.
  Result<RowCheck> check_received(int set);
  Result<RowCheck> check_output(int set);
  /// Null if results are checked by the processor only.
  DeviceCheck* device_check() const { return device_check_.get(); }
  DeviceCheck::Round device_round(int set) const {
    return {.step = at(set).step, .rows_step = at(set).rows_step};
  }
  const DispatchOutput& received(int set) const { return *at(set).received; }
  const std::byte* output(int set) const { return at(set).out.device(); }

  void add_received(int set, Fingerprint& fingerprint) const;
  void add_output(int set, Fingerprint& fingerprint) const;

  /// Rows that the set's dispatch delivered to each local expert.
  std::vector<std::int64_t> expert_counts(int set) const;
  /// Rows of the set's receive tensors in use, padding included.
  std::int64_t num_received(int set) const;

 private:
  struct Set {
    MirroredBuffer x;
    MirroredBuffer scales;
    MirroredBuffer out;
    Tensor arena_rows;  // of the experts, in the one or the other
    HostBuffer outside_rows;
    std::shared_ptr<std::byte> outside_memory;  // in place of outside_rows on a GPU
    std::optional<DispatchOutput> received;
    std::unique_ptr<Graph> dispatch_graph;
    std::unique_ptr<Graph> combine_graph;
    int rows_step = -1;  // whose rows x holds
    int step = 0;        // whose routing ran last
  };
  struct StepInput {
    MirroredBuffer topk_idx;
    MirroredBuffer topk_weights;
  };

  Workload(
      const Job& job, const BufferPlan& plan, Device& device, Group& group, const ExpertMap& map);

  const Set& at(int set) const { return sets_[static_cast<std::size_t>(set)]; }
  Set& at(int set) { return sets_[static_cast<std::size_t>(set)]; }
  Result<Set> make_set() const;
  Status make_experts_room(Set& set) const;
  Status upload_steps();
  DispatchInput dispatch_input(const Set& set, int step) const;
  ConstTensorView topk_weights(int step) const;
  std::byte* expert_rows(const Set& set) const;
  /// Where the processor writes expert rows.
  std::byte* expert_rows_on_host(const Set& set, std::int64_t num_rows);
  bool replays(bool is_timed) const { return options_.mode == Mode::kGraph && is_timed; }
  Status call_dispatch(int set, int step);
  Status call_combine(int set);
  /// What the last read_received() has read, which was of this set.
  const DispatchOutput& image_of(int set) const;
  void forget_image();
  StepView step_view(const Set& set, const RowPlaces& places) const;
  RowCheck check_image(int set);
  RowCheck check_output_here(int set);

  const Options& options_;
  BufferPlan plan_;
  Device& device_;
  Group& group_;
  std::optional<int> sms_;
  RowSource rows_;
  StepTable steps_;
  std::vector<ExpertFunction> experts_;
  LocalExperts local_experts_;
  Reference reference_;
  std::vector<StepInput> inputs_;        // by step, on a GPU
  std::vector<DispatchHandle> handles_;  // by step, of RoutingReuse::kCached
  std::vector<Set> sets_;
  std::unique_ptr<DeviceCheck> device_check_;
  ReceivedImage image_;
  int imaged_set_ = kNoSet;
  HostBuffer experts_scratch_;

  static constexpr int kNoSet = -1;
};

}  // namespace ep::bench
