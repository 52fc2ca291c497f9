// SPDX-License-Identifier: Apache-2.0
// Checks, memory and launches of a dispatch.
#include "core/dispatch_call.h"

#include "base/check.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace ep::core {
namespace {

// Row numbers travel as 32-bit words.
constexpr std::int64_t kMaxCapacity = std::numeric_limits<std::int32_t>::max();
constexpr int kMaxAlignment = 1 << 20;

void announce_tensor(layout::BlockAnnouncement& block,
                     layout::Section section,
                     const Tensor& tensor) {
  if (!tensor) return;
  const fabric::Block& memory = tensor.storage()->block();
  const std::int64_t offset = static_cast<const std::byte*>(tensor.view().data) - memory.data;
  block.place(section, announced(memory, offset));
}

std::uint32_t word(std::int64_t value) { return static_cast<std::uint32_t>(value); }

CopyWay best_copy_way(Backend backend) {
  // On a host a second copy from the sender's cache costs one write; the receiver would read the
  // row again (bench/README.md). Between GPUs the sender's copies cross the wire (docs/tuning.md).
  return backend == Backend::kCuda ? CopyWay::kReceiver : CopyWay::kSender;
}

/// Element `at` of an integer tensor in the engine's memory.
Result<std::int64_t> read_int(Engine& engine, const ConstTensorView& view, std::int64_t at) {
  if (view.dtype == DType::kInt64) {
    std::int64_t value = 0;
    EP_TRY(engine.read(&value, static_cast<const std::int64_t*>(view.data) + at, sizeof(value)));
    return value;
  }
  std::int32_t value = 0;
  EP_TRY(engine.read(&value, static_cast<const std::int32_t*>(view.data) + at, sizeof(value)));
  return std::int64_t{value};
}

}  // namespace

DispatchCall::DispatchCall(GroupState& state, const DispatchRequest& request)
    : call_(state, request.kind), request_(request) {}

const ExpertMap& DispatchCall::experts() const {
  return request_.options.experts.is_empty() ? call_.state().config().experts
                                             : request_.options.experts;
}

std::optional<std::int64_t> DispatchCall::capacity() const {
  const DispatchBuffers& out = request_.options.out;
  for (const Tensor* tensor : {&out.x, &out.scales, &out.topk_idx, &out.topk_weights}) {
    if (*tensor) return tensor->view().size(0);
  }
  return request_.options.capacity;
}

Check DispatchCall::check() const {
  const GroupState& state = call_.state();
  const DispatchInput& input = request_.input;
  if (Check check = check_rows({Rejection::kX, is_backward() ? "grad_out" : "x", input.x},
                               state.config().max_hidden_bytes)) {
    return check;
  }
  if (num_tokens() > state.config().max_tokens) {
    return refuse(Rejection::kX, "x",
                  to_string(input.x) + ": " + std::to_string(num_tokens()) +
                      " tokens, but max_tokens = " + std::to_string(state.config().max_tokens));
  }
  if (!input.scales.is_null()) {
    const Argument scales{Rejection::kScales, "scales", input.scales};
    if (Check check =
            first_of({check_matrix(scales, {.rows = num_tokens()}), check_unit_stride(scales)}))
      return check;
    if (input.scales.size(1) < 1 || input.scales.size(1) > input.x.size(1)) {
      return refuse(Rejection::kScales, "scales",
                    to_string(input.scales) + ": " + std::to_string(input.scales.size(1)) +
                        " scales per row, need 1 to H = " + std::to_string(input.x.size(1)));
    }
    if (state.rails() != nullptr &&
        row_bytes_of(input.scales) > state.rails()->net().shape.max_tail_bytes()) {
      return refuse(Rejection::kScales, "scales",
                    to_string(input.scales) + ": " + std::to_string(row_bytes_of(input.scales)) +
                        " bytes per row, but rows between nodes carry at most " +
                        std::to_string(state.rails()->net().shape.max_tail_bytes()));
    }
  }
  if (Check check = is_fresh() ? check_fresh() : check_cached()) return check;
  const DispatchOptions& options = request_.options;
  if (Check check = first_of({check_num_sms(options.num_sms, state), check_outputs()}))
    return check;
  return check_locations();
}

Check DispatchCall::check_locations() const {
  const GroupState& state = call_.state();
  if (state.engine().is_synchronous()) return {};
  const DispatchInput& input = request_.input;
  return first_of({
      check_location({Rejection::kX, is_backward() ? "grad_out" : "x", input.x}, state),
      check_location({Rejection::kScales, "scales", input.scales}, state),
      check_location({Rejection::kTopkIdx, "topk_idx", input.topk_idx}, state),
      check_location({Rejection::kTopkWeights, "topk_weights", input.topk_weights}, state),
      check_location({Rejection::kRows, "rows", request_.expert_rows}, state),
  });
}

Check DispatchCall::check_fresh() const {
  const GroupState& state = call_.state();
  const DispatchInput& input = request_.input;
  const DispatchOptions& options = request_.options;
  const Argument topk_idx{Rejection::kTopkIdx, "topk_idx", input.topk_idx};
  if (Check check = check_topk_idx(topk_idx, state, num_tokens())) return check;
  const int topk = static_cast<int>(input.topk_idx.size(1));
  if (Check check = check_topk_weights(
          {Rejection::kTopkWeights, "topk_weights", input.topk_weights}, num_tokens(), topk)) {
    return check;
  }
  if (options.alignment < 1 || options.alignment > kMaxAlignment) {
    return refuse(
        Rejection::kAlignment, "alignment",
        std::to_string(options.alignment) + ", need 1 to " + std::to_string(kMaxAlignment));
  }
  const ExpertMap& map = experts();
  if (map.num_ranks() != state.num_ranks() || map.num_experts() > state.config().max_experts) {
    return refuse(Rejection::kExperts, "experts",
                  "map of " + std::to_string(map.num_experts()) + " experts on " +
                      std::to_string(map.num_ranks()) +
                      " ranks, but max_experts = " + std::to_string(state.config().max_experts) +
                      " and the group has " + std::to_string(state.num_ranks()) + " ranks");
  }
  return check_capacity();
}

Check DispatchCall::check_capacity() const {
  const std::optional<std::int64_t>& of_options = request_.options.capacity;
  if (of_options && (*of_options < 0 || *of_options > kMaxCapacity)) {
    return refuse(Rejection::kCapacity, "capacity",
                  std::to_string(*of_options) + ", need 0 to " + std::to_string(kMaxCapacity));
  }
  if (!capacity() && call_.state().engine().is_capturing()) {
    return refuse(Rejection::kCapacity, "capacity",
                  "is needed under stream capture, or given outputs: exact sizes take a wait");
  }
  return {};
}

Check DispatchCall::check_cached() const {
  if (Check check = check_handle(request_.handle, call_.state())) return check;
  const Routing::Spec& spec = request_.handle.routing().spec();
  if (num_tokens() != spec.num_tokens) {
    return refuse(Rejection::kX, is_backward() ? "grad_out" : "x",
                  to_string(request_.input.x) + ": the handle has " +
                      std::to_string(spec.num_tokens) + " tokens");
  }
  if (!request_.input.topk_idx.is_null()) {
    return refuse(Rejection::kTopkIdx, "topk_idx", "must be null: the handle has the routing");
  }
  if (Check check =
          check_topk_weights({Rejection::kTopkWeights, "topk_weights", request_.input.topk_weights},
                             num_tokens(), spec.topk)) {
    return check;
  }
  return is_backward() ? check_expert_rows() : Check();
}

Check DispatchCall::check_expert_rows() const {
  if (Check check = check_reducible_rows({Rejection::kGradient, "grad_out", request_.input.x},
                                         call_.state().config().max_hidden_bytes)) {
    return check;
  }
  const bool has_weights = !request_.input.topk_weights.is_null();
  if (has_weights != returns_gradient()) {
    return refuse(Rejection::kRows, "rows",
                  "rows and topk_weights come together, for a weighted combine");
  }
  if (!has_weights) return {};
  const Routing& routing = request_.handle.routing();
  if (!routing.has_expert_rows()) {
    return refuse(Rejection::kTopkWeights, "topk_weights", "weights need layout kExpertMajor");
  }
  const Argument rows{Rejection::kRows, "rows", request_.expert_rows};
  if (Check check = first_of({check_reducible_rows(rows, call_.state().config().max_hidden_bytes),
                              check_dtype(rows, request_.input.x.dtype)})) {
    return check;
  }
  if (rows.view.size(0) >= routing.least_rows() && rows.view.size(1) == request_.input.x.size(1)) {
    return {};
  }
  return refuse(Rejection::kRows, rows.name,
                to_string(rows.view) + ", need at least [" + std::to_string(routing.least_rows()) +
                    ", " + std::to_string(request_.input.x.size(1)) + "]");
}

Check DispatchCall::check_output(Rejection reason,
                                 const char* name,
                                 const Tensor& tensor,
                                 const TensorView& wanted) const {
  if (!tensor) return {};
  const TensorView& view = tensor.view();
  bool is_same = view.dtype == wanted.dtype && view.num_dims == wanted.num_dims;
  for (int dim = 0; is_same && dim < view.num_dims; ++dim)
    is_same = view.size(dim) == wanted.size(dim);
  if (is_same) return {};
  return refuse(reason, name, to_string(view) + ", need " + to_string(wanted));
}

TensorView DispatchCall::weights_view(std::int64_t num_rows) const {
  const bool is_flat = is_fresh() ? request_.options.layout == Layout::kFlat
                                  : request_.handle.layout() == Layout::kFlat;
  if (!is_flat) return TensorView(nullptr, DType::kFp32, {num_rows});
  const std::int64_t topk = is_fresh() ? request_.input.topk_idx.size(1) : request_.handle.topk();
  return TensorView(nullptr, DType::kFp32, {num_rows, topk});
}

Check DispatchCall::check_outputs() const {
  const DispatchBuffers& out = request_.options.out;
  if (Check check = check_buffers(out, call_.state())) return check;
  const std::optional<std::int64_t> given = capacity();
  if (!given) return {};
  if (request_.options.capacity && *request_.options.capacity != *given) {
    return refuse(Rejection::kCapacity, "capacity",
                  std::to_string(*request_.options.capacity) + ", but the given outputs have " +
                      std::to_string(*given) + " rows");
  }
  if (!is_fresh() && *given != request_.handle.routing().capacity()) {
    return refuse(Rejection::kOutputs, "out",
                  std::to_string(*given) + " rows, but the handle's outputs have " +
                      std::to_string(request_.handle.routing().capacity()));
  }
  const DispatchInput& input = request_.input;
  const TensorView weights = weights_view(*given);
  const DType idx_dtype =
      is_fresh() ? input.topk_idx.dtype : request_.handle.routing().spec().idx_dtype;
  const TensorView idx(nullptr, idx_dtype, {*given, weights.num_dims == 2 ? weights.size(1) : 0});
  const TensorView scales(nullptr, input.scales.dtype,
                          {*given, input.scales.is_null() ? 0 : input.scales.size(1)});
  return first_of({
      check_output(Rejection::kOutputs, "out.x", out.x,
                   TensorView(nullptr, input.x.dtype, {*given, input.x.size(1)})),
      check_output(Rejection::kOutputs, "out.scales", out.scales, scales),
      check_output(Rejection::kOutputs, "out.topk_idx", out.topk_idx, idx),
      check_output(Rejection::kOutputs, "out.topk_weights", out.topk_weights, weights),
  });
}

void DispatchCall::announce() {
  call_.announce_routing(*routing_);
  layout::OpAnnouncement& op = call_.announcement();
  const DispatchInput& input = request_.input;
  op[layout::OpField::kDType] = static_cast<std::uint32_t>(input.x.dtype);
  op[layout::OpField::kRowBytes] = word(row_bytes_of(input.x));
  op[layout::OpField::kScaleBytes] = word(row_bytes_of(input.scales));
  op[layout::OpField::kHasWeights] = input.topk_weights.is_null() ? 0 : 1;
  op[layout::OpField::kWay] = static_cast<std::uint32_t>(routing_->spec().copy_way);
}

intranode::DispatchParams DispatchCall::base_params() const {
  intranode::DispatchParams params;
  const DispatchInput& input = request_.input;
  const std::int64_t bytes = num_tokens() * row_bytes_of(input.x);
  params.op = call_.params(streams_rows(bytes));
  params.routing = routing_->params();
  params.x = row_input(input.x);
  params.scales = row_input(input.scales);
  params.pipes_scales = params.scales.row_bytes > 0 && params.scales.is_in_units();
  params.topk_idx = strided_input(input.topk_idx);
  params.is_fresh = is_fresh();
  params.idx_bytes = size_of(routing_->spec().idx_dtype);
  params.input_idx_bytes = params.idx_bytes;
  params.topk_weights = strided_input(input.topk_weights);
  params.has_weights = !input.topk_weights.is_null();
  params.has_records = !is_backward() && !routing_->has_expert_rows();
  params.copies_at_receiver =
      routing_->has_expert_rows() &&
      (routing_->spec().copy_way == CopyWay::kReceiver || returns_gradient());
  params.expert_rows = row_input(request_.expert_rows);
  params.dtype = input.x.dtype;
  params.returns_gradient = returns_gradient();
  return params;
}

Status DispatchCall::count() {
  intranode::DispatchParams params = base_params();
  params.has_moves = false;
  Engine& engine = call_.state().engine();
  EP_TRY(engine.launch(params, num_channels_, stream()));
  is_counted_ = true;
  EP_TRY(explain(call_.settle(stream())));
  return routing_->learn_sizes(engine);
}

Status DispatchCall::allocate_output(Tensor& output,
                                     const Tensor& given,
                                     const TensorView& wanted) {
  if (given) {
    output = given;
    return Status();
  }
  GroupState& state = call_.state();
  if (wanted.num_dims == 1) {
    EP_TRY_ASSIGN(output, state.allocate(wanted.dtype, {wanted.size(0)}));
  } else {
    EP_TRY_ASSIGN(output, state.allocate(wanted.dtype, {wanted.size(0), wanted.size(1)}));
  }
  return Status();
}

Status DispatchCall::allocate(std::int64_t num_rows) {
  if (num_rows > kMaxCapacity) {
    return Status(Errc::kUnsupported, "dispatch: " + std::to_string(num_rows) +
                                          " rows to receive, at most " +
                                          std::to_string(kMaxCapacity) + " are possible");
  }
  GroupState& state = call_.state();
  const DispatchInput& input = request_.input;
  const DispatchBuffers& given = request_.options.out;
  EP_TRY(allocate_output(output_.x, given.x,
                         TensorView(nullptr, input.x.dtype, {num_rows, input.x.size(1)})));
  if (!input.scales.is_null()) {
    const TensorView wanted(nullptr, input.scales.dtype, {num_rows, input.scales.size(1)});
    EP_TRY(allocate_output(output_.scales, given.scales, wanted));
  }
  if (!routing_->has_expert_rows() && !is_backward()) {
    const TensorView wanted(nullptr, routing_->spec().idx_dtype, {num_rows, routing_->spec().topk});
    EP_TRY(allocate_output(output_.topk_idx, given.topk_idx, wanted));
  }
  if (!input.topk_weights.is_null()) {
    EP_TRY(allocate_output(output_.topk_weights, given.topk_weights, weights_view(num_rows)));
  }
  if (returns_gradient()) EP_TRY(allocate_gradient());
  if (!is_fresh()) return Status();
  routing_->set_capacity(num_rows);
  const std::int64_t max_pairs = state.config().max_tokens * state.num_ranks();
  const std::int64_t num_pairs = is_counted_ ? routing_->size(layout::Size::kPairs) : max_pairs;
  return routing_->allocate_records(state, routing_->has_expert_rows() ? num_pairs : num_rows);
}

Status DispatchCall::allocate_gradient() {
  EP_TRY_ASSIGN(gradient_,
                call_.state().allocate(DType::kFp32, {num_tokens(), routing_->spec().topk}));
  // Owners write the values of rows that exist; -1 and dropped rows have gradient 0.
  const TensorView& view = gradient_.view();
  return call_.state().engine().fill_zero(view.data, view.num_elems() * size_of(view.dtype),
                                          stream());
}

Status DispatchCall::move(std::uint32_t block_rejection) {
  intranode::DispatchParams params = base_params();
  params.has_counts = !is_counted_;
  params.block_rejection = block_rejection;
  if (block_rejection == layout::kAccepted) {
    params.block[layout::BlockField::kCapacityRows] = word(output_.x.view().size(0));
    announce_tensor(params.block, layout::Section::kRows, output_.x);
    announce_tensor(params.block, layout::Section::kScales, output_.scales);
    announce_tensor(params.block, layout::Section::kTopkIdx, output_.topk_idx);
    announce_tensor(params.block, layout::Section::kTopkWeights, output_.topk_weights);
    announce_tensor(params.block, layout::Section::kSideValues, gradient_);
    routing_->announce_records(params.block);
  }
  EP_TRY(call_.state().engine().launch(params, num_channels_, stream()));
  return explain(call_.conclude());
}

Status DispatchCall::explain(const Status& status) const {
  if (status.code() != Errc::kInvalidArgument || status.peer() != call_.state().rank())
    return status;
  const std::uint64_t rejected = call_.state().engine().report().rejected;
  if (!is_fresh() || rejected == 0) return status;
  const std::uint64_t position = ~rejected;
  const std::int64_t topk = routing_->spec().topk;
  const auto token = static_cast<std::int64_t>(position) / topk;
  const auto k = static_cast<std::int64_t>(position) % topk;
  const ConstTensorView& idx = request_.input.topk_idx;
  const std::int64_t at = token * idx.stride(0) + k * idx.stride(1);
  EP_TRY_ASSIGN(const std::int64_t value, read_int(call_.state().engine(), idx, at));
  return Status(Errc::kInvalidArgument,
                call_.where() + "topk_idx[" + std::to_string(token) + "," + std::to_string(k) +
                    "] = " + std::to_string(value) + ", but num_experts = " +
                    std::to_string(routing_->spec().experts.num_experts()) + " (-1 = no expert)");
}

Result<DispatchOutput> DispatchCall::output() {
  Engine& engine = call_.state().engine();
  if (engine.is_synchronous()) EP_TRY(routing_->learn_sizes(engine));
  DispatchOutput output = std::move(output_);
  output.expert_counts = routing_->expert_counts();
  output.expert_offsets = routing_->expert_offsets();
  output.sizes = routing_->sizes();
  output.handle = DispatchHandle(routing_);
  return output;
}

Status DispatchCall::prepare_routing() {
  if (!is_fresh()) {
    routing_ = request_.handle.shared_routing();
    routing_->retain(call_.state().engine());
    return Status();
  }
  const DispatchOptions& options = request_.options;
  const ConstTensorView& idx = request_.input.topk_idx;
  EP_TRY_ASSIGN(routing_,
                Routing::create(call_.state(),
                                {.layout = options.layout,
                                 .alignment = options.alignment,
                                 .copy_way = options.copy_way == CopyWay::kAuto
                                                 ? best_copy_way(call_.state().config().backend)
                                                 : options.copy_way,
                                 .experts = experts(),
                                 .idx_dtype = idx.dtype,
                                 .num_tokens = num_tokens(),
                                 .topk = static_cast<int>(idx.size(1))},
                                stream()));
  return Status();
}

Status DispatchCall::run_fixed(std::int64_t num_rows) {
  if (const Status memory = allocate(num_rows); !memory.ok())
    return call_.refuse({Rejection::kMemory, memory});
  return move(layout::kAccepted);
}

Status DispatchCall::run_exact() {
  EP_TRY(count());
  const Status memory = allocate(routing_->size(layout::Size::kNeededRows));
  const Status moved =
      move(memory.ok() ? layout::kAccepted : static_cast<std::uint32_t>(Rejection::kMemory));
  return memory.ok() ? moved : memory;
}

Result<DispatchOutput> DispatchCall::run() {
  GroupState& state = call_.state();
  EP_TRY(state.check_usable());
  const Turn turn(state.engine(), stream());
  if (!turn.status().ok()) return call_.refuse({Rejection::kStream, turn.status()});
  if (const Check check = this->check()) return call_.refuse(*check);
  if (const Status memory = prepare_routing(); !memory.ok())
    return call_.refuse({Rejection::kMemory, memory});
  announce();
  const OpShape shape{.num_tokens = num_tokens(),
                      .hidden_bytes = row_bytes_of(request_.input.x),
                      .topk = routing_->spec().topk,
                      .layout = routing_->spec().layout};
  num_channels_ = state.num_channels(request_.options.num_sms, shape);
  const std::optional<std::int64_t> fixed_rows = is_fresh() ? capacity() : routing_->capacity();
  EP_TRY(fixed_rows ? run_fixed(*fixed_rows) : run_exact());
  return output();
}

}  // namespace ep::core
