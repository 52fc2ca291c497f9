// SPDX-License-Identifier: Apache-2.0
// The public operations: what each is made of.
#include "base/check.h"
#include "core/combine_call.h"
#include "core/dispatch_call.h"

#include <ep/moe.h>

#include <algorithm>
#include <utility>

namespace ep {

Result<DispatchOutput> dispatch(Group& group,
                                const DispatchInput& input,
                                const DispatchOptions& options) {
  return core::DispatchCall(group.state(), {.input = input, .options = options}).run();
}

Result<DispatchOutput> dispatch_cached(Group& group,
                                       const DispatchHandle& handle,
                                       const DispatchInput& input,
                                       const DispatchOptions& options) {
  return core::DispatchCall(group.state(), {.kind = layout::OpKind::kDispatchCached,
                                            .input = input,
                                            .options = options,
                                            .handle = handle})
      .run();
}

Result<CombineOutput> combine(Group& group,
                              const DispatchHandle& handle,
                              const CombineInput& input,
                              const CombineOptions& options) {
  EP_TRY_ASSIGN(
      core::CombineResult result,
      core::CombineCall(group.state(), {.handle = handle, .input = input, .options = options})
          .run());
  return std::move(result.output);
}

Result<DispatchGrad> dispatch_backward(Group& group,
                                       const DispatchHandle& handle,
                                       const DispatchGradInput& input,
                                       const CombineOptions& options) {
  EP_TRY_ASSIGN(core::CombineResult result,
                core::CombineCall(group.state(), {.kind = layout::OpKind::kDispatchBackward,
                                                  .handle = handle,
                                                  .input = {.rows = input.grad_x},
                                                  .grad_topk_weights = input.grad_topk_weights,
                                                  .options = options})
                    .run());
  return DispatchGrad{std::move(result.output), std::move(result.grad_topk_weights)};
}

Result<CombineGrad> combine_backward(Group& group,
                                     const DispatchHandle& handle,
                                     const CombineGradInput& input,
                                     const DispatchOptions& options) {
  core::DispatchCall call(group.state(),
                          {.kind = layout::OpKind::kCombineBackward,
                           .input = {.x = input.grad_out, .topk_weights = input.topk_weights},
                           .options = options,
                           .handle = handle,
                           .expert_rows = input.rows});
  EP_TRY_ASSIGN(DispatchOutput output, call.run());
  return CombineGrad{std::move(output.x), call.gradient()};
}

}  // namespace ep
