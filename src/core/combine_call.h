// SPDX-License-Identifier: Apache-2.0
// One combine on this rank, or the backward of a dispatch.
#pragma once

#include "core/op_call.h"
#include "intranode/combine_params.h"

#include <ep/moe.h>

#include <cstdint>
#include <memory>

namespace ep::core {

struct CombineRequest {
  layout::OpKind kind = layout::OpKind::kCombine;
  DispatchHandle handle{};
  CombineInput input{};
  ConstTensorView
      grad_topk_weights{};  ///< of kDispatchBackward: null or the gradient of the received weights
  CombineOptions options{};
};

struct CombineResult {
  CombineOutput output{};
  Tensor grad_topk_weights{};
};

class CombineCall {
 public:
  CombineCall(GroupState& state, const CombineRequest& request);

  Result<CombineResult> run();

 private:
  const Routing& routing() const { return request_.handle.routing(); }
  std::int64_t num_tokens() const { return routing().spec().num_tokens; }
  bool is_weighted() const { return !request_.input.topk_weights.is_null(); }
  bool has_gradient() const { return !request_.grad_topk_weights.is_null(); }
  bool is_pushing() const;
  Stream stream() const { return request_.options.stream; }

  Check check() const;
  Check check_rows_and_bias() const;
  Check check_weights() const;
  Check check_gradient() const;
  Check check_out() const;
  Check check_locations() const;
  void announce();
  /// Output, and the arena copies of what peers read.
  Status allocate();
  intranode::CombineParams params() const;
  void locate_rows(intranode::CombineParams& params) const;
  intranode::SideArray weights_array() const;
  intranode::SideArray gradient_array() const;

  OpCall call_;
  CombineRequest request_;
  Tensor weights_copy_;
  Tensor gradient_copy_;
  CombineResult result_;
};

}  // namespace ep::core
