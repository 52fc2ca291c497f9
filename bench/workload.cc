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

void poison_tensor(const Tensor& tensor) {
  const TensorView& view = tensor.view();
  if (view.data == nullptr) return;
  std::memset(view.data, HostBuffer::kPoison,
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

}  // namespace

Result<std::unique_ptr<Workload>> Workload::create(const Job& job,
                                                   const BufferPlan& plan,
                                                   Group& group) {
  EP_TRY_ASSIGN(const ExpertMap map, ExpertMap::balanced(job.options.experts, group.num_ranks()));
  auto workload = std::unique_ptr<Workload>(new Workload(job, plan, group, map));
  for (int i = 0; i < plan.num_sets; ++i) {
    EP_TRY_ASSIGN(Set set, workload->make_set());
    workload->sets_.push_back(std::move(set));
    workload->fill_input(i, i % workload->steps().num_steps());
  }
  return workload;
}

Workload::Workload(const Job& job, const BufferPlan& plan, Group& group, const ExpertMap& map)
    : options_(job.options),
      plan_(plan),
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
                  .hidden = options_.hidden},
                 experts_),
      handles_(static_cast<std::size_t>(steps_.num_steps())) {}

Result<Workload::Set> Workload::make_set() const {
  const DType expert_dtype = expert_dtype_of(options_.dtype);
  const auto expert_row_bytes = static_cast<std::size_t>(options_.hidden * size_of(expert_dtype));
  const auto num_tokens = static_cast<std::size_t>(options_.tokens);
  const auto max_rows = static_cast<std::size_t>(plan_.max_rows);
  Set set;
  set.x = HostBuffer(num_tokens * rows_.format().row_bytes());
  set.scales = HostBuffer(num_tokens * rows_.format().num_scales() * sizeof(float));
  if (options_.command == Command::kDispatch) return set;
  set.out = HostBuffer(num_tokens * expert_row_bytes);
  if (options_.placement == Placement::kOutside) {
    set.outside_rows = HostBuffer(max_rows * expert_row_bytes);
  } else {
    EP_TRY_ASSIGN(set.arena_rows, group_.allocate(expert_dtype, {plan_.max_rows, options_.hidden}));
  }
  return set;
}

void Workload::fill_input(int set_index, int step) {
  Set& set = at(set_index);
  if (set.rows_step == step) return;
  set.rows_step = step;
  const std::size_t row_bytes = rows_.format().row_bytes();
  const std::size_t num_scales = rows_.format().num_scales();
  for (std::int64_t token = 0; token < steps_.num_tokens(step); ++token) {
    const auto index = static_cast<std::size_t>(token);
    rows_.fill(steps_.routing().row_key(step, group_.rank(), token),
               {set.x.get() + index * row_bytes, row_bytes},
               set.scales.as<float>().subspan(index * num_scales, num_scales));
  }
}

DispatchInput Workload::dispatch_input(const Set& set, int step) const {
  const std::int64_t num_tokens = steps_.num_tokens(step);
  const auto num_scales = static_cast<std::int64_t>(rows_.format().num_scales());
  DispatchInput input;
  input.x = ConstTensorView(set.x.get(), options_.dtype, {num_tokens, options_.hidden});
  if (num_scales > 0) {
    input.scales = ConstTensorView(set.scales.get(), DType::kFp32, {num_tokens, num_scales});
  }
  input.topk_weights = steps_.topk_weights(step);
  return input;
}

Status Workload::dispatch(int set_index, int step) {
  Set& set = at(set_index);
  DispatchOptions options;
  options.layout = options_.layout;
  options.alignment = options_.align;
  options.capacity = plan_.capacity;
  DispatchHandle& handle = handles_[static_cast<std::size_t>(step)];
  DispatchInput input = dispatch_input(set, step);
  set.step = step;
  if (options_.routing == RoutingReuse::kCached && !handle.is_null()) {
    EP_TRY_ASSIGN(set.received, dispatch_cached(group_, handle, input, options));
    return {};
  }
  input.topk_idx = steps_.topk_idx(step);
  EP_TRY_ASSIGN(set.received, ep::dispatch(group_, input, options));
  handle = set.received->handle;
  return {};
}

void Workload::run_experts(int set_index) {
  const Set& set = at(set_index);
  const DispatchOutput& received = *set.received;
  const ExpertRows io = {.dtype = options_.dtype,
                         .hidden = options_.hidden,
                         .num_scales = static_cast<std::int64_t>(rows_.format().num_scales()),
                         .rows = received.x.data<std::byte>(),
                         .scales = received.scales.data<float>(),
                         .out = expert_rows(set)};
  const std::int64_t num_rows = num_received(set_index);
  if (options_.layout == Layout::kFlat) {
    const auto num_choices = static_cast<std::size_t>(num_rows * options_.topk);
    local_experts_.apply_flat(io, num_rows, {received.topk_idx.data<std::int64_t>(), num_choices},
                              {received.topk_weights.data<float>(), num_choices});
    return;
  }
  const auto* offsets = received.expert_offsets.data<std::int64_t>();
  const std::vector<std::int64_t> counts = expert_counts(set_index);
  for (std::size_t local = 0; local < counts.size(); ++local) {
    const std::int64_t first = std::min(offsets[local], num_rows);
    const std::int64_t count = std::min(counts[local], num_rows - first);
    local_experts_.apply_expert(io, static_cast<int>(local), first, count);
  }
}

Status Workload::combine(int set_index) {
  Set& set = at(set_index);
  const DType dtype = expert_dtype_of(options_.dtype);
  CombineInput input;
  input.rows =
      ConstTensorView(expert_rows(set), dtype, {set.received->x.view().size(0), options_.hidden});
  if (options_.layout == Layout::kExpertMajor) input.topk_weights = steps_.topk_weights(set.step);
  CombineOptions options;
  options.out = TensorView(set.out.get(), dtype, {steps_.num_tokens(set.step), options_.hidden});
  return base::to_status(ep::combine(group_, set.received->handle, input, options));
}

std::byte* Workload::expert_rows(const Set& set) const {
  return options_.placement == Placement::kArena ? set.arena_rows.data<std::byte>()
                                                 : set.outside_rows.get();
}

void Workload::release_received(int set) { at(set).received.reset(); }

void Workload::poison(int set_index) {
  const Set& set = at(set_index);
  if (set.out.get() != nullptr) set.out.poison();
  if (!set.received) return;
  poison_tensor(set.received->x);
  poison_tensor(set.received->scales);
  poison_tensor(set.received->topk_idx);
  poison_tensor(set.received->topk_weights);
}

RowCheck Workload::check_received(int set_index) {
  const Set& set = at(set_index);
  RowCheck check;
  steps_.with_places(set.step, [&](const RowPlaces& places) {
    check = bench::check_received({.places = places,
                                   .routing = steps_.routing(),
                                   .rows_step = set.rows_step,
                                   .capacity = capacity_of(plan_),
                                   .rank = group_.rank()},
                                  rows_, *set.received);
  });
  return check;
}

RowCheck Workload::check_output(int set_index) {
  const Set& set = at(set_index);
  RowCheck check;
  steps_.with_places(set.step, [&](const RowPlaces& places) {
    check = bench::check_output({.places = places,
                                 .routing = steps_.routing(),
                                 .rows_step = set.rows_step,
                                 .capacity = capacity_of(plan_),
                                 .rank = group_.rank()},
                                rows_, reference_, set.out.get());
  });
  return check;
}

void Workload::add_received(int set_index, Fingerprint& fingerprint) const {
  const DispatchOutput& received = *at(set_index).received;
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
  fingerprint.add({set.out.get(), static_cast<std::size_t>(bytes)});
}

std::vector<std::int64_t> Workload::expert_counts(int set) const {
  const Tensor& counts = at(set).received->expert_counts;
  if (counts.view().data == nullptr) return {};
  const auto* first = counts.data<std::int64_t>();
  return {first, first + counts.view().num_elems()};
}

std::int64_t Workload::num_received(int set) const {
  return *at(set).received->sizes.data<std::int64_t>();
}

}  // namespace ep::bench
