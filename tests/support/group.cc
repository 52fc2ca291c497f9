// SPDX-License-Identifier: Apache-2.0
// The library's group and operations as tests call them.
#include "tests/support/group.h"

#include "base/check.h"

namespace ep::test {
namespace {

using Call = DeviceMirror::Call;

GroupConfig on_backend(const GroupConfig& config) {
  GroupConfig changed = config;
  if (test_backend() == Backend::kCuda) changed.backend = Backend::kCuda;
  return changed;
}

/// The error of a call that has ended on the device.
Status settle(const Group& group, Call& call, const Status& of_call) {
  call.finish();
  return of_call.ok() ? group.status() : of_call;
}

DispatchInput placed(Call& call, const DispatchInput& input) {
  return {.x = call.input(input.x),
          .scales = call.input(input.scales),
          .topk_idx = call.input(input.topk_idx),
          .topk_weights = call.input(input.topk_weights)};
}

DispatchOptions placed(Call& call, const DispatchOptions& options) {
  DispatchOptions changed = options;
  changed.stream = call.stream(options.stream);
  changed.out = {.x = call.output(options.out.x),
                 .scales = call.output(options.out.scales),
                 .topk_idx = call.output(options.out.topk_idx),
                 .topk_weights = call.output(options.out.topk_weights)};
  return changed;
}

CombineOptions placed(Call& call, const CombineOptions& options) {
  CombineOptions changed = options;
  changed.stream = call.stream(options.stream);
  changed.out = call.output(options.out);
  return changed;
}

DispatchOutput shown(DeviceMirror& mirror, const DispatchOutput& output) {
  return {.x = mirror.show(output.x),
          .scales = mirror.show(output.scales),
          .topk_idx = mirror.show(output.topk_idx),
          .topk_weights = mirror.show(output.topk_weights),
          .expert_counts = mirror.show(output.expert_counts),
          .expert_offsets = mirror.show(output.expert_offsets),
          .sizes = mirror.show(output.sizes),
          .handle = output.handle};
}

CombineOutput shown(DeviceMirror& mirror, const CombineOutput& output, const TensorView& given) {
  CombineOutput changed = output;
  changed.tensor = mirror.show(output.tensor);
  changed.out = changed.tensor ? changed.tensor.view() : given;
  return changed;
}

}  // namespace

Result<std::unique_ptr<Group>> Group::create(Bootstrap& bootstrap, const GroupConfig& config) {
  const GroupConfig changed = on_backend(config);
  std::shared_ptr<DeviceMirror> mirror;
  if (test_backend() == Backend::kCuda) mirror = DeviceMirror::of_rank(bootstrap.rank());
  EP_TRY_ASSIGN(std::unique_ptr<ep::Group> group, ep::Group::create(bootstrap, changed));
  return std::make_unique<Group>(std::move(group), std::move(mirror));
}

Result<ArenaPlan> Group::plan(const GroupConfig& config, int num_ranks) {
  return ep::Group::plan(on_backend(config), num_ranks);
}

Result<Tensor> Group::allocate(DType dtype, std::initializer_list<std::int64_t> shape) {
  EP_TRY_ASSIGN(Tensor tensor, group_->allocate(dtype, shape));
  return mirror_ ? mirror_->show(tensor) : tensor;
}

void Group::write_back(const Tensor& tensor) const {
  if (mirror_) mirror_->upload(tensor);
}

Result<DispatchOutput> dispatch(Group& group,
                                const DispatchInput& input,
                                const DispatchOptions& options) {
  if (!group.mirror()) return ep::dispatch(group.library(), input, options);
  Call call(group.mirror());
  const auto output = ep::dispatch(group.library(), placed(call, input), placed(call, options));
  EP_TRY(settle(group, call, output.status()));
  return shown(*group.mirror(), *output);
}

Result<DispatchOutput> dispatch_cached(Group& group,
                                       const DispatchHandle& handle,
                                       const DispatchInput& input,
                                       const DispatchOptions& options) {
  if (!group.mirror()) return ep::dispatch_cached(group.library(), handle, input, options);
  Call call(group.mirror());
  const auto output =
      ep::dispatch_cached(group.library(), handle, placed(call, input), placed(call, options));
  EP_TRY(settle(group, call, output.status()));
  return shown(*group.mirror(), *output);
}

Result<CombineOutput> combine(Group& group,
                              const DispatchHandle& handle,
                              const CombineInput& input,
                              const CombineOptions& options) {
  if (!group.mirror()) return ep::combine(group.library(), handle, input, options);
  Call call(group.mirror());
  const CombineInput on_device{.rows = call.input(input.rows),
                               .topk_weights = call.input(input.topk_weights),
                               .bias = call.input(input.bias)};
  const auto output = ep::combine(group.library(), handle, on_device, placed(call, options));
  EP_TRY(settle(group, call, output.status()));
  return shown(*group.mirror(), *output, options.out);
}

Result<DispatchGrad> dispatch_backward(Group& group,
                                       const DispatchHandle& handle,
                                       const DispatchGradInput& input,
                                       const CombineOptions& options) {
  if (!group.mirror()) return ep::dispatch_backward(group.library(), handle, input, options);
  Call call(group.mirror());
  const DispatchGradInput on_device{.grad_x = call.input(input.grad_x),
                                    .grad_topk_weights = call.input(input.grad_topk_weights)};
  const auto output =
      ep::dispatch_backward(group.library(), handle, on_device, placed(call, options));
  EP_TRY(settle(group, call, output.status()));
  return DispatchGrad{.grad_x = shown(*group.mirror(), output->grad_x, options.out),
                      .grad_topk_weights = group.mirror()->show(output->grad_topk_weights)};
}

Result<CombineGrad> combine_backward(Group& group,
                                     const DispatchHandle& handle,
                                     const CombineGradInput& input,
                                     const DispatchOptions& options) {
  if (!group.mirror()) return ep::combine_backward(group.library(), handle, input, options);
  Call call(group.mirror());
  const CombineGradInput on_device{.grad_out = call.input(input.grad_out),
                                   .topk_weights = call.input(input.topk_weights),
                                   .rows = call.input(input.rows)};
  const auto output =
      ep::combine_backward(group.library(), handle, on_device, placed(call, options));
  EP_TRY(settle(group, call, output.status()));
  return CombineGrad{.grad_rows = group.mirror()->show(output->grad_rows),
                     .grad_topk_weights = group.mirror()->show(output->grad_topk_weights)};
}

}  // namespace ep::test
