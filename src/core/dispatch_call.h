// SPDX-License-Identifier: Apache-2.0
// One dispatch on this rank: fresh, with the routing of a handle, or as the backward of a combine.
#pragma once

#include "core/op_call.h"

#include <ep/moe.h>

#include <cstdint>
#include <memory>

namespace ep::core {

struct DispatchRequest {
  layout::OpKind kind = layout::OpKind::kDispatch;
  DispatchInput input{};
  DispatchOptions options{};
  DispatchHandle handle{};        ///< of kDispatchCached and kCombineBackward
  ConstTensorView expert_rows{};  ///< backward of a weighted combine: the rows that it read
};

class DispatchCall {
 public:
  DispatchCall(GroupState& state, const DispatchRequest& request);

  Result<DispatchOutput> run();
  /// After run(): the router's gradient [T, K] of a weighted combine's backward.
  const Tensor& gradient() const { return gradient_; }

 private:
  bool is_fresh() const { return request_.kind == layout::OpKind::kDispatch; }
  bool is_backward() const { return request_.kind == layout::OpKind::kCombineBackward; }
  bool returns_gradient() const { return !request_.expert_rows.is_null(); }
  std::int64_t num_tokens() const { return request_.input.x.size(0); }
  Stream stream() const { return request_.options.stream; }

  Check check() const;
  Check check_fresh() const;
  Check check_cached() const;
  Check check_expert_rows() const;
  Check check_locations() const;
  Check check_capacity() const;
  Check check_outputs() const;
  Check check_output(Rejection reason,
                     const char* name,
                     const Tensor& tensor,
                     const TensorView& wanted) const;
  const ExpertMap& experts() const;
  std::optional<std::int64_t> capacity() const;
  TensorView weights_view(std::int64_t num_rows) const;

  void announce();
  intranode::DispatchParams base_params() const;
  /// The routing of a fresh call, or the handle's.
  Status prepare_routing();
  /// Counts, agrees, and learns how many rows come. Fresh calls without a capacity.
  Status count();
  /// Rows of the outputs and of the records.
  Status allocate(std::int64_t num_rows);
  Status allocate_gradient();
  Status allocate_output(Tensor& output, const Tensor& given, const TensorView& wanted);
  Status move(std::uint32_t block_rejection);
  /// A refusal with the value of topk_idx that this rank was refused for.
  Status explain(const Status& status) const;
  /// Outputs of a size that is known before the call.
  Status run_fixed(std::int64_t num_rows);
  /// Counts first.
  Status run_exact();
  Result<DispatchOutput> output();

  OpCall call_;
  DispatchRequest request_;
  std::shared_ptr<Routing> routing_;
  int num_channels_ = 1;
  bool is_counted_ = false;
  DispatchOutput output_;
  Tensor gradient_;
};

}  // namespace ep::core
