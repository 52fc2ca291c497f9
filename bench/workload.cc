// SPDX-License-Identifier: Apache-2.0
// Runs the library's operations on the buffers of a set.
#include "bench/workload.h"

#include "base/check.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

namespace ep::bench {
namespace {

std::int64_t capacity_of(const BufferPlan& plan) {
  return plan.capacity.value_or(std::numeric_limits<std::int64_t>::max());
}

Status poison_tensor(Device& device, const Tensor& tensor) {
  const TensorView& view = tensor.view();
  if (view.data == nullptr || view.num_elems() == 0) return {};
  return device.fill(tensor.data<std::byte>(), HostBuffer::kPoison,
                     static_cast<std::size_t>(view.num_elems() * size_of(view.dtype)));
}

/// The first `num_rows` rows of a tensor, if it has any.
void add_rows(const Tensor& tensor, std::int64_t num_rows, Fingerprint& fingerprint) {
  const TensorView& view = tensor.view();
  if (view.data == nullptr || view.size(0) == 0) return;
  const std::int64_t row_bytes = view.num_elems() / view.size(0) * size_of(view.dtype);
  const std::int64_t bytes = std::min(num_rows, view.size(0)) * row_bytes;
  fingerprint.add({tensor.data<std::byte>(), static_cast<std::size_t>(bytes)});
}

/// A buffer with the elements of a contiguous view.
Result<MirroredBuffer> copy_of(Device& device, const ConstTensorView& view) {
  const auto bytes = static_cast<std::size_t>(view.num_elems() * size_of(view.dtype));
  EP_TRY_ASSIGN(MirroredBuffer buffer, MirroredBuffer::create(device, bytes));
  if (bytes > 0) std::memcpy(buffer.host(), view.data, bytes);
  EP_TRY(buffer.upload());
  return buffer;
}

ConstTensorView moved(ConstTensorView view, const std::byte* data) {
  view.data = data;
  return view;
}

}  // namespace

Result<std::unique_ptr<Workload>> Workload::create(const Job& job,
                                                   const BufferPlan& plan,
                                                   Device& device,
                                                   Group& group) {
  EP_TRY_ASSIGN(const ExpertMap map, ExpertMap::balanced(job.options.experts, group.num_ranks()));
  auto workload = std::unique_ptr<Workload>(new Workload(job, plan, device, group, map));
  EP_TRY(workload->upload_steps());
  EP_TRY_ASSIGN(workload->device_check_, DeviceCheck::create(device, {.options = workload->options_,
                                                                      .rows = workload->rows_,
                                                                      .steps = workload->steps_,
                                                                      .experts = workload->experts_,
                                                                      .capacity = capacity_of(plan),
                                                                      .rank = group.rank()}));
  for (int i = 0; i < plan.num_sets; ++i) {
    EP_TRY_ASSIGN(Set set, workload->make_set());
    workload->sets_.push_back(std::move(set));
    EP_TRY(workload->fill_input(i, i % workload->steps().num_steps()));
  }
  return workload;
}

Workload::Workload(
    const Job& job, const BufferPlan& plan, Device& device, Group& group, const ExpertMap& map)
    : options_(job.options),
      plan_(plan),
      device_(device),
      group_(group),
      rows_(job.row_format()),
      steps_(job,
             {.rank = group.rank(),
              .num_steps = plan.num_sets,
              .capacity = capacity_of(plan),
              .map = map}),
      experts_(make_experts(options_.experts, options_.seed, options_.exact)),
      local_experts_(experts_, map, group.rank()),
      reference_({.layout = options_.layout,
                  .exact = options_.exact,
                  .dtype = options_.dtype,
                  .hidden = options_.hidden,
                  .rank = group.rank(),
                  .lsa_size = lsa_size_of(options_)},
                 experts_),
      handles_(static_cast<std::size_t>(steps_.num_steps())) {}

Result<Workload::Set> Workload::make_set() const {
  const DType expert_dtype = expert_dtype_of(options_.dtype);
  const auto expert_row_bytes = static_cast<std::size_t>(options_.hidden * size_of(expert_dtype));
  const auto num_tokens = static_cast<std::size_t>(options_.tokens);
  const RowFormat& format = rows_.format();
  Set set;
  EP_TRY_ASSIGN(set.x, MirroredBuffer::create(device_, num_tokens * format.row_bytes()));
  EP_TRY_ASSIGN(set.scales,
                MirroredBuffer::create(device_, num_tokens * format.num_scales() * sizeof(float)));
  if (options_.command == Command::kDispatch) return set;
  EP_TRY_ASSIGN(set.out, MirroredBuffer::create(device_, num_tokens * expert_row_bytes));
  EP_TRY(make_experts_room(set));
  return set;
}

Status Workload::make_experts_room(Set& set) const {
  const DType dtype = expert_dtype_of(options_.dtype);
  if (options_.placement == Placement::kArena) {
    EP_TRY_ASSIGN(set.arena_rows, group_.allocate(dtype, {plan_.max_rows, options_.hidden}));
    return {};
  }
  const auto bytes = static_cast<std::size_t>(plan_.max_rows * options_.hidden * size_of(dtype));
  if (device_.is_host()) {
    set.outside_rows = HostBuffer(bytes);
    return {};
  }
  EP_TRY_ASSIGN(set.outside_memory, device_.allocate(bytes));
  return {};
}

Status Workload::upload_steps() {
  if (device_.is_host()) return {};
  for (int step = 0; step < steps_.num_steps(); ++step) {
    StepInput input;
    EP_TRY_ASSIGN(input.topk_idx, copy_of(device_, steps_.topk_idx(step)));
    EP_TRY_ASSIGN(input.topk_weights, copy_of(device_, steps_.topk_weights(step)));
    inputs_.push_back(std::move(input));
  }
  return {};
}

void Workload::set_sms(std::optional<int> sms) {
  sms_ = sms;
  for (Set& set : sets_) {
    set.dispatch_graph.reset();
    set.combine_graph.reset();
  }
}

int Workload::num_sms(Movement movement) const {
  return group_.num_sms(op_shape_of(options_, movement), sms_);
}

Status Workload::fill_input(int set_index, int step) {
  Set& set = at(set_index);
  if (set.rows_step == step) return {};
  set.rows_step = step;
  const std::size_t row_bytes = rows_.format().row_bytes();
  const std::size_t num_scales = rows_.format().num_scales();
  for (std::int64_t token = 0; token < steps_.num_tokens(step); ++token) {
    const auto index = static_cast<std::size_t>(token);
    rows_.fill(steps_.routing().row_key(step, group_.rank(), token),
               {set.x.host() + index * row_bytes, row_bytes},
               set.scales.as<float>().subspan(index * num_scales, num_scales));
  }
  EP_TRY(set.x.upload());
  return set.scales.upload();
}

ConstTensorView Workload::topk_weights(int step) const {
  const ConstTensorView view = steps_.topk_weights(step);
  if (device_.is_host()) return view;
  return moved(view, inputs_[static_cast<std::size_t>(step)].topk_weights.device());
}

DispatchInput Workload::dispatch_input(const Set& set, int step) const {
  const std::int64_t num_tokens = steps_.num_tokens(step);
  const auto num_scales = static_cast<std::int64_t>(rows_.format().num_scales());
  DispatchInput input;
  input.x = ConstTensorView(set.x.device(), options_.dtype, {num_tokens, options_.hidden});
  if (num_scales > 0) {
    input.scales = ConstTensorView(set.scales.device(), DType::kFp32, {num_tokens, num_scales});
  }
  input.topk_weights = topk_weights(step);
  return input;
}

Status Workload::call_dispatch(int set_index, int step) {
  Set& set = at(set_index);
  DispatchOptions options;
  options.layout = options_.layout;
  options.alignment = options_.align;
  options.capacity = plan_.capacity;
  options.num_sms = sms_;
  options.stream = device_.stream();
  DispatchHandle& handle = handles_[static_cast<std::size_t>(step)];
  DispatchInput input = dispatch_input(set, step);
  if (options_.routing == RoutingReuse::kCached && !handle.is_null()) {
    EP_TRY_ASSIGN(set.received, dispatch_cached(group_, handle, input, options));
    return {};
  }
  input.topk_idx = steps_.topk_idx(step);
  if (!device_.is_host()) {
    input.topk_idx =
        moved(input.topk_idx, inputs_[static_cast<std::size_t>(step)].topk_idx.device());
  }
  EP_TRY_ASSIGN(set.received, ep::dispatch(group_, input, options));
  handle = set.received->handle;
  return {};
}

Status Workload::dispatch(int set_index, int step) {
  Set& set = at(set_index);
  forget_image();
  set.step = step;
  if (!replays(options_.command != Command::kCombine)) return call_dispatch(set_index, step);
  if (set.dispatch_graph == nullptr) {
    // The first call of a shape may allocate, which a capture must not.
    EP_TRY(call_dispatch(set_index, step));
    EP_TRY(settle());
    // The capture finds the memory that this call had: the pool cannot grow then.
    set.received.reset();
    if (options_.routing == RoutingReuse::kFresh) handles_[static_cast<std::size_t>(step)] = {};
    EP_TRY_ASSIGN(set.dispatch_graph, device_.capture([this, set_index, step] {
      return call_dispatch(set_index, step);
    }));
  }
  return set.dispatch_graph->launch();
}

Status Workload::run_experts(int set_index) {
  const Set& set = at(set_index);
  const DispatchOutput& received = image_of(set_index);
  const std::int64_t num_rows = num_received(set_index);
  const ExpertRows io = {.dtype = options_.dtype,
                         .hidden = options_.hidden,
                         .num_scales = static_cast<std::int64_t>(rows_.format().num_scales()),
                         .rows = received.x.data<std::byte>(),
                         .scales = received.scales.data<float>(),
                         .out = expert_rows_on_host(set, num_rows)};
  if (options_.layout == Layout::kFlat) {
    const auto num_choices = static_cast<std::size_t>(num_rows * options_.topk);
    local_experts_.apply_flat(io, num_rows, {received.topk_idx.data<std::int64_t>(), num_choices},
                              {received.topk_weights.data<float>(), num_choices});
  } else {
    const auto* offsets = received.expert_offsets.data<std::int64_t>();
    const std::vector<std::int64_t> counts = expert_counts(set_index);
    for (std::size_t local = 0; local < counts.size(); ++local) {
      const std::int64_t first = std::min(offsets[local], num_rows);
      const std::int64_t count = std::min(counts[local], num_rows - first);
      local_experts_.apply_expert(io, static_cast<int>(local), first, count);
    }
  }
  const auto bytes = static_cast<std::size_t>(num_rows * options_.hidden *
                                              size_of(expert_dtype_of(options_.dtype)));
  return bytes == 0 ? Status() : device_.copy_in(expert_rows(set), {io.out, bytes});
}

Status Workload::call_combine(int set_index) {
  Set& set = at(set_index);
  const DType dtype = expert_dtype_of(options_.dtype);
  CombineInput input;
  input.rows =
      ConstTensorView(expert_rows(set), dtype, {set.received->x.view().size(0), options_.hidden});
  if (options_.layout == Layout::kExpertMajor) input.topk_weights = topk_weights(set.step);
  CombineOptions options;
  options.num_sms = sms_;
  options.stream = device_.stream();
  options.out = TensorView(set.out.device(), dtype, {steps_.num_tokens(set.step), options_.hidden});
  return base::to_status(ep::combine(group_, set.received->handle, input, options));
}

Status Workload::combine(int set_index) {
  Set& set = at(set_index);
  if (!replays(options_.command != Command::kDispatch)) return call_combine(set_index);
  if (set.combine_graph == nullptr) {
    EP_TRY(call_combine(set_index));
    EP_TRY(settle());
    EP_TRY_ASSIGN(set.combine_graph,
                  device_.capture([this, set_index] { return call_combine(set_index); }));
  }
  return set.combine_graph->launch();
}

Status Workload::settle() {
  EP_TRY(device_.synchronize());
  return group_.status();
}

Status Workload::read_received(int set) {
  EP_TRY(settle());
  EP_TRY(image_.take(device_, *at(set).received));
  imaged_set_ = set;
  return {};
}

Status Workload::read_output(int set) {
  EP_TRY(settle());
  return device_.is_host() ? Status() : at(set).out.download();
}

const DispatchOutput& Workload::image_of(int set) const {
  EP_CHECK(imaged_set_ == set, "received rows of another set were read");
  return image_.output();
}

void Workload::forget_image() {
  image_.clear();
  imaged_set_ = kNoSet;
}

std::byte* Workload::expert_rows(const Set& set) const {
  if (options_.placement == Placement::kArena) return set.arena_rows.data<std::byte>();
  return set.outside_memory ? set.outside_memory.get() : set.outside_rows.get();
}

std::byte* Workload::expert_rows_on_host(const Set& set, std::int64_t num_rows) {
  if (device_.is_host()) return expert_rows(set);
  const auto bytes = static_cast<std::size_t>(num_rows * options_.hidden *
                                              size_of(expert_dtype_of(options_.dtype)));
  if (experts_scratch_.get() == nullptr || experts_scratch_.size() < bytes) {
    experts_scratch_ = HostBuffer(bytes);
  }
  return experts_scratch_.get();
}

void Workload::release_received(int set) {
  forget_image();
  // A graph writes where it was captured.
  if (at(set).dispatch_graph == nullptr) at(set).received.reset();
}

Status Workload::poison(int set_index) {
  const Set& set = at(set_index);
  if (!set.out.is_null()) EP_TRY(set.out.poison());
  if (!set.received) return {};
  EP_TRY(poison_tensor(device_, set.received->x));
  EP_TRY(poison_tensor(device_, set.received->scales));
  EP_TRY(poison_tensor(device_, set.received->topk_idx));
  return poison_tensor(device_, set.received->topk_weights);
}

StepView Workload::step_view(const Set& set, const RowPlaces& places) const {
  return {.places = places,
          .routing = steps_.routing(),
          .rows_step = set.rows_step,
          .capacity = capacity_of(plan_),
          .rank = group_.rank()};
}

RowCheck Workload::check_image(int set_index) {
  const Set& set = at(set_index);
  RowCheck check;
  steps_.with_places(set.step, [&](const RowPlaces& places) {
    check = bench::check_received(step_view(set, places), rows_, image_of(set_index));
  });
  return check;
}

RowCheck Workload::check_output_here(int set_index) {
  const Set& set = at(set_index);
  RowCheck check;
  steps_.with_places(set.step, [&](const RowPlaces& places) {
    check = bench::check_output(step_view(set, places), rows_, reference_, set.out.host());
  });
  return check;
}

Result<RowCheck> Workload::check_received(int set) {
  RowCheck on_device;
  if (device_check_) {
    EP_TRY(settle());
    EP_TRY(device_check_->check_received(device_round(set), received(set)));
    EP_TRY_ASSIGN(on_device, device_check_->take_received());
    if (on_device.wrong == 0) return on_device;
  }
  if (imaged_set_ != set) EP_TRY(read_received(set));
  const RowCheck here = check_image(set);
  return here.wrong == 0 && device_check_ ? on_device : here;
}

Result<RowCheck> Workload::check_output(int set) {
  RowCheck on_device;
  if (device_check_) {
    EP_TRY(settle());
    EP_TRY(device_check_->check_output(device_round(set), output(set)));
    EP_TRY_ASSIGN(on_device, device_check_->take_output());
    if (on_device.wrong == 0) return on_device;
  }
  EP_TRY(read_output(set));
  const RowCheck here = check_output_here(set);
  return here.wrong == 0 && device_check_ ? on_device : here;
}

void Workload::add_received(int set_index, Fingerprint& fingerprint) const {
  const DispatchOutput& received = image_of(set_index);
  const std::int64_t num_rows = num_received(set_index);
  add_rows(received.x, num_rows, fingerprint);
  add_rows(received.scales, num_rows, fingerprint);
  if (options_.layout == Layout::kFlat) {
    add_rows(received.topk_idx, num_rows, fingerprint);
    add_rows(received.topk_weights, num_rows, fingerprint);
  }
  for (std::int64_t count : expert_counts(set_index)) {
    fingerprint.add(static_cast<std::uint64_t>(count));
  }
}

void Workload::add_output(int set_index, Fingerprint& fingerprint) const {
  const Set& set = at(set_index);
  const DType dtype = expert_dtype_of(options_.dtype);
  const std::int64_t bytes = steps_.num_tokens(set.step) * options_.hidden * size_of(dtype);
  fingerprint.add({set.out.host(), static_cast<std::size_t>(bytes)});
}

std::vector<std::int64_t> Workload::expert_counts(int set) const {
  const Tensor& counts = image_of(set).expert_counts;
  if (counts.view().data == nullptr) return {};
  const auto* first = counts.data<std::int64_t>();
  return {first, first + counts.view().num_elems()};
}

std::int64_t Workload::num_received(int set) const {
  return *image_of(set).sizes.data<std::int64_t>();
}

}  // namespace ep::bench
