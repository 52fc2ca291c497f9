// SPDX-License-Identifier: Apache-2.0
// One rank with a GPU whose operations are captured in graphs, and replayed with other data.
#pragma once

#include "tests/support/device_mirror.h"
#include "tests/support/moe_ops.h"

#include <ep/group.h>
#include <ep/moe.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ep::test {

/// A graph of one operation.
class CapturedCall {
 public:
  CapturedCall() = default;
  CapturedCall(CapturedCall&& other) noexcept;
  CapturedCall& operator=(CapturedCall&& other) noexcept;
  ~CapturedCall();

  /// Captures what `call` queues on the stream; empty, with a finding, if CUDA fails. The status of
  /// the call goes to `status`.
  static CapturedCall record(RankContext& context,
                             Stream stream,
                             const std::function<Status()>& call,
                             Status& status);
  bool is_null() const { return exec_ == nullptr; }
  /// Empty, or the error of CUDA.
  std::string launch(Stream stream) const;

 private:
  void* exec_ = nullptr;
};

/// Problems of one shape: T of each rank, K, E, H, layout, capacity. Inputs and experts' rows lie
/// at the same addresses for all of them.
class GraphRank {
 public:
  /// `sample` has the shape; every rank has a capacity that holds any routing of it.
  GraphRank(RankContext& context, const Problem& sample, std::int64_t pool_bytes);

  bool is_ready() const { return group_ != nullptr; }
  ep::Group& group() { return *group_; }
  Stream stream() const { return device_->stream(); }
  void wait() { device_->wait(); }

  /// The inputs of the calls that follow, in the order of the stream.
  void set_problem(const Oracle& oracle, const RowValues& values);
  /// Queues that the inputs get their bytes only after a while: until then they are poison.
  void make_inputs_late(std::chrono::milliseconds delay);
  /// Queue poison over what the calls before have read.
  void overwrite_inputs();
  void overwrite_rows();
  Status dispatch();
  /// Of what the last dispatch() returned, also one that was captured.
  Status combine();
  /// Experts' rows for the routing of the last set_problem(); in the arena, allocated once.
  Status allocate_rows();
  void forget_output() { received_.reset(); }

  /// Wait for the stream, and compare with the oracle; empty: right.
  std::string wrong_received(const Oracle& oracle);
  std::string wrong_sums(const Oracle& oracle, const RowValues& values);

  const std::optional<DispatchOutput>& received() const { return received_; }
  void use_output(const DispatchOutput& output) { received_ = output; }

  /// Without a capacity: for what a capture refuses.
  Status dispatch_of_exact_size();

 private:
  DispatchInput input() const;
  DispatchOptions options() const;
  std::int64_t num_tokens() const;
  void poison(std::byte* memory, std::int64_t bytes);

  /// An input of a dispatch, and where it waits to be late.
  struct Input {
    std::byte* memory = nullptr;
    std::byte* waiting = nullptr;
    std::int64_t bytes = 0;
  };
  Input allocate_input(std::int64_t bytes);

  RankContext& context_;
  Problem sample_;
  std::unique_ptr<Device> device_;
  std::shared_ptr<DeviceMirror> mirror_;
  std::unique_ptr<ep::Group> group_;
  Input x_;
  Input topk_idx_;
  Input topk_weights_;
  std::byte* out_ = nullptr;
  Tensor rows_;
  std::optional<DispatchOutput> received_;
};

}  // namespace ep::test
