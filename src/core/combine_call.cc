// SPDX-License-Identifier: Apache-2.0
// Checks, memory and launch of a combine.
#include "core/combine_call.h"

#include "base/check.h"

#include <algorithm>
#include <string>

namespace ep::core {
namespace {

/// Bytes from the first to the end of the last row.
std::int64_t extent_bytes(const ConstTensorView& rows) {
  if (rows.size(0) == 0) return 0;
  return (rows.size(0) - 1) * rows.stride(0) * size_of(rows.dtype) + row_bytes_of(rows);
}

/// Pulled rows cross the wire once per expert, pushed ones once per rank: on GPUs, where the wire
/// is the limit, owners push what is more than one row per rank on average.
CombineWay best_way(const GroupState& state, const Routing& routing) {
  const bool is_many = routing.has_expert_rows() && routing.spec().topk > state.num_ranks();
  return state.config().backend == Backend::kCuda && is_many && state.num_ranks() > 1
             ? CombineWay::kPush
             : CombineWay::kPull;
}

}  // namespace

CombineCall::CombineCall(GroupState& state, const CombineRequest& request)
    : call_(state, request.kind), request_(request) {}

bool CombineCall::is_pushing() const {
  const CombineWay way = request_.options.way;
  return (way == CombineWay::kAuto ? best_way(call_.state(), routing()) : way) == CombineWay::kPush;
}

Check CombineCall::check_rows_and_bias() const {
  const CombineInput& input = request_.input;
  const bool is_backward = request_.kind == layout::OpKind::kDispatchBackward;
  const Argument rows{is_backward ? Rejection::kGradient : Rejection::kRows,
                      is_backward ? "grad_x" : "rows", input.rows};
  if (Check check = check_reducible_rows(rows, call_.state().config().max_hidden_bytes))
    return check;
  const std::int64_t num_rows = routing().least_rows();
  if (input.rows.size(0) < num_rows) {
    return refuse(rows.reason, rows.name,
                  to_string(input.rows) + ": the handle's dispatch has " +
                      std::to_string(num_rows) + " rows");
  }
  if (input.bias.is_null()) return {};
  const Argument bias{Rejection::kBias, "bias", input.bias};
  return first_of({check_matrix(bias, {num_tokens(), input.rows.size(1)}),
                   check_dtype(bias, input.rows.dtype), check_unit_stride(bias),
                   check_sum_alignment(bias, call_.state())});
}

Check CombineCall::check_weights() const {
  if (!is_weighted()) return {};
  if (!routing().has_expert_rows()) {
    return refuse(
        Rejection::kTopkWeights, "topk_weights",
        "a flat row already stands for several experts: weights need layout kExpertMajor");
  }
  return check_topk_weights({Rejection::kTopkWeights, "topk_weights", request_.input.topk_weights},
                            num_tokens(), routing().spec().topk);
}

Check CombineCall::check_gradient() const {
  if (!has_gradient()) return {};
  const Argument gradient{Rejection::kGradient, "grad_topk_weights", request_.grad_topk_weights};
  if (Check check =
          first_of({check_dtype(gradient, DType::kFp32), check_element_alignment(gradient)})) {
    return check;
  }
  const ConstTensorView& view = gradient.view;
  const int num_dims = routing().has_expert_rows() ? 1 : 2;
  const bool is_right_shape = view.num_dims == num_dims && view.size(0) >= routing().least_rows() &&
                              (num_dims == 1 || view.size(1) == routing().spec().topk);
  const bool is_contiguous =
      view.stride(num_dims - 1) == 1 && (num_dims == 1 || view.stride(0) == view.size(1));
  if (is_right_shape && (is_contiguous || view.num_elems() <= 1)) return {};
  return refuse(Rejection::kGradient, gradient.name,
                to_string(view) + ", need the contiguous shape of the dispatch's topk_weights");
}

Check CombineCall::check_out() const {
  const TensorView& view = request_.options.out;
  if (view.is_null()) return {};
  const Argument out{Rejection::kOutputs, "out", view};
  const ConstTensorView& rows = request_.input.rows;
  if (Check check = first_of(
          {check_matrix(out, {num_tokens(), rows.size(1)}), check_dtype(out, rows.dtype)})) {
    return check;
  }
  return first_of({check_unit_stride(out), check_output_rows(out), check_disjoint(out, rows),
                   check_disjoint(out, request_.input.bias),
                   check_sum_alignment(out, call_.state())});
}

Check CombineCall::check_locations() const {
  const GroupState& state = call_.state();
  if (state.engine().is_synchronous()) return {};
  const CombineInput& input = request_.input;
  return first_of({
      check_location({Rejection::kRows, "rows", input.rows}, state),
      check_location({Rejection::kTopkWeights, "topk_weights", input.topk_weights}, state),
      check_location({Rejection::kBias, "bias", input.bias}, state),
      check_location({Rejection::kGradient, "grad_topk_weights", request_.grad_topk_weights},
                     state),
      check_location({Rejection::kOutputs, "out", request_.options.out}, state),
  });
}

Check CombineCall::check() const {
  const GroupState& state = call_.state();
  const CombineOptions& options = request_.options;
  if (Check check =
          first_of({check_handle(request_.handle, state), check_num_sms(options.num_sms, state)})) {
    return check;
  }
  if (Check check = check_rows_and_bias()) return check;
  if (Check check = first_of({check_weights(), check_gradient(), check_out()})) return check;
  return check_locations();
}

void CombineCall::announce() {
  call_.announce_routing(routing());
  layout::OpAnnouncement& op = call_.announcement();
  const ConstTensorView& rows = request_.input.rows;
  op[layout::OpField::kDType] = static_cast<std::uint32_t>(rows.dtype);
  op[layout::OpField::kRowBytes] = static_cast<std::uint32_t>(row_bytes_of(rows));
  op[layout::OpField::kHasWeights] = is_weighted() || has_gradient() ? 1 : 0;
  op[layout::OpField::kWay] = is_pushing() ? 1 : 0;
}

Status CombineCall::allocate() {
  GroupState& state = call_.state();
  const ConstTensorView& rows = request_.input.rows;
  const std::int64_t topk = routing().spec().topk;
  if (request_.options.out.is_null()) {
    EP_TRY_ASSIGN(result_.output.tensor, state.allocate(rows.dtype, {num_tokens(), rows.size(1)}));
    result_.output.out = result_.output.tensor.view();
  } else {
    result_.output.out = request_.options.out;
  }
  if (is_weighted()) {
    EP_TRY_ASSIGN(weights_copy_, state.allocate(DType::kFp32, {num_tokens(), topk}));
  }
  if (has_gradient()) {
    EP_TRY_ASSIGN(gradient_copy_,
                  state.allocate(DType::kFp32, {request_.grad_topk_weights.num_elems()}));
    EP_TRY_ASSIGN(result_.grad_topk_weights, state.allocate(DType::kFp32, {num_tokens(), topk}));
  }
  return Status();
}

intranode::SideArray CombineCall::weights_array() const {
  if (!is_weighted()) return {};
  return {.input = strided_input(request_.input.topk_weights),
          .num_rows = num_tokens(),
          .num_cols = routing().spec().topk,
          .arena_copy = weights_copy_.data<float>()};
}

intranode::SideArray CombineCall::gradient_array() const {
  if (!has_gradient()) return {};
  const ConstTensorView& view = request_.grad_topk_weights;
  return {.input = {.data = view.data, .row_stride = 1, .col_stride = 0},
          .num_rows = view.num_elems(),
          .num_cols = 1,
          .arena_copy = gradient_copy_.data<float>()};
}

void CombineCall::locate_rows(intranode::CombineParams& params) const {
  const ConstTensorView& rows = request_.input.rows;
  const fabric::Pool& pool = call_.state().pool();
  params.block[layout::BlockField::kRowStrideUnits] =
      static_cast<std::uint32_t>(params.rows.stride_bytes / layout::kLocationUnit);
  if (const auto location = pool.locate(rows.data, extent_bytes(rows));
      location || rows.size(0) == 0) {
    if (location) params.block.place(layout::Section::kRows, announced(*location));
  } else {
    params.is_staged = true;
    params.block[layout::BlockField::kIsStaged] = 1;
  }
  const auto announce_copy = [&](layout::Section section, const Tensor& copy) {
    if (copy) params.block.place(section, announced(copy.storage()->block()));
  };
  announce_copy(layout::Section::kTopkWeights, weights_copy_);
  announce_copy(layout::Section::kSideValues, gradient_copy_);
}

intranode::CombineParams CombineCall::params() const {
  intranode::CombineParams params;
  const CombineInput& input = request_.input;
  params.op = call_.params(streams_rows(num_tokens() * row_bytes_of(input.rows)));
  params.routing = routing().params();
  params.rows = row_input(input.rows);
  params.src_tokens = routing().src_tokens();
  params.record_rows = routing().record_rows();
  params.weights = weights_array();
  params.side = gradient_array();
  params.side_out = has_gradient() ? result_.grad_topk_weights.data<float>() : nullptr;
  params.bias = row_input(input.bias);
  params.out = static_cast<std::byte*>(result_.output.out.data);
  params.out_stride_bytes = result_.output.out.stride(0) * size_of(input.rows.dtype);
  params.sum = {.num_elems = input.rows.size(1),
                .dtype = input.rows.dtype,
                .weighted = is_weighted(),
                .max_terms = routing().has_expert_rows()
                                 ? routing().spec().topk
                                 : std::min(routing().spec().topk, call_.state().num_ranks())};
  params.pushes = is_pushing();
  locate_rows(params);
  return params;
}

Result<CombineResult> CombineCall::run() {
  GroupState& state = call_.state();
  EP_TRY(state.check_usable());
  const Turn turn(state.engine(), stream());
  if (!turn.status().ok()) return call_.refuse({Rejection::kStream, turn.status()});
  if (const Check check = this->check()) return call_.refuse(*check);
  if (const Status status = allocate(); !status.ok())
    return call_.refuse({Rejection::kMemory, status});
  announce();
  routing().retain(state.engine());
  const intranode::CombineParams params = this->params();
  result_.output.staged = params.is_staged;
  const OpShape shape{.num_tokens = num_tokens(),
                      .hidden_bytes = params.rows.row_bytes,
                      .topk = routing().spec().topk,
                      .movement = Movement::kCombine,
                      .layout = routing().spec().layout};
  EP_TRY(
      state.engine().launch(params, state.num_channels(request_.options.num_sms, shape), stream()));
  EP_TRY(call_.conclude());
  return result_;
}

}  // namespace ep::core
