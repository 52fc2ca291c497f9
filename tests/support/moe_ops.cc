// SPDX-License-Identifier: Apache-2.0
// One rank's part in an operation whose result is checked against the oracle.
#include "tests/support/moe_ops.h"

#include "tests/support/guarded_buffers.h"
#include "tests/support/payload.h"

#include <cstring>
#include <utility>

namespace ep::test {
namespace {

constexpr std::int64_t kGapBytes = 48;
constexpr std::uint64_t kBiasSeed = 1000;

std::size_t to_size(std::int64_t value) { return static_cast<std::size_t>(value); }

DispatchOptions options_of(const Oracle& oracle, int rank, const DispatchSpec& spec) {
  const Problem& problem = oracle.problem();
  DispatchOptions options;
  options.layout = problem.layout;
  options.alignment = problem.alignment;
  options.experts = map_of(problem);
  options.capacity = problem.capacity_of(rank);
  options.copy_way = spec.copy_way;
  options.num_sms = spec.num_sms;
  return options;
}

using DispatchCall =
    std::function<Result<DispatchOutput>(const DispatchInput&, const DispatchOptions&)>;

std::optional<DispatchOutput> run_dispatch(RankContext& context,
                                           Group& group,
                                           const Oracle& oracle,
                                           const DispatchSpec& spec,
                                           const DispatchCall& call) {
  const Problem& problem = oracle.problem();
  context.step("dispatch", problem.call);
  RankInputs inputs(problem, context.rank(), spec.strides);
  DispatchOptions options = options_of(oracle, context.rank(), spec);
  std::optional<GuardedBuffers> buffers;
  if (spec.gives_buffers) {
    auto made = GuardedBuffers::create(group, problem, *options.capacity);
    if (!context.expect_ok(made.status(), "output buffers")) return std::nullopt;
    buffers.emplace(std::move(made).value());
    options.out = buffers->tensors();
  }
  auto output = call(inputs.views(), options);
  if (spec.overwrites_inputs) inputs.overwrite();
  if (!context.expect_ok(output.status(), problem.describe())) return std::nullopt;
  std::string wrong = check_dispatch(oracle, context.rank(), *output, spec.check);
  if (wrong.empty() && buffers)
    wrong = buffers->broken_guard(oracle.rank(context.rank()).num_kept());
  if (!context.expect_nothing(wrong, problem.describe())) return std::nullopt;
  return std::move(output).value();
}

/// The [T, H] rows of a token tensor in ordinary memory.
std::vector<std::byte> token_rows(const Oracle& oracle,
                                  int rank,
                                  const RowValues& values,
                                  std::int64_t row_bytes) {
  const std::int64_t num_tokens = oracle.problem().routing.ranks[to_size(rank)].num_tokens;
  std::vector<std::byte> rows(to_size(num_tokens * row_bytes));
  for (std::int64_t token = 0; token < num_tokens; ++token) {
    values.fill_token_row(rank, token,
                          std::span(rows).subspan(to_size(token * row_bytes), to_size(row_bytes)));
  }
  return rows;
}

RowValues bias_values(const CombineSpec& spec) {
  RowValues values = spec.values;
  values.seed += kBiasSeed;
  return values;
}

std::vector<std::byte> packed(const TensorView& view) {
  const auto row_bytes = to_size(view.size(1) * size_of(view.dtype));
  const std::int64_t stride_bytes = view.stride(0) * size_of(view.dtype);
  std::vector<std::byte> rows(to_size(view.size(0)) * row_bytes);
  for (std::int64_t row = 0; row < view.size(0); ++row) {
    std::memcpy(rows.data() + to_size(row) * row_bytes,
                static_cast<const std::byte*>(view.data) + row * stride_bytes, row_bytes);
  }
  return rows;
}

/// Gradients of what dispatch returned as topk_weights; NaN where nothing may be read.
std::vector<float> side_values(const Oracle& oracle, int rank, const RowValues& values) {
  const Problem& problem = oracle.problem();
  const int width = problem.layout == Layout::kFlat ? problem.routing.topk : 1;
  const ExpectedRank& expected = oracle.rank(rank);
  std::vector<float> side(to_size(expected.num_rows() * width));
  poison(std::as_writable_bytes(std::span(side)), Poison::kNan);
  for (std::int64_t row = 0; row < expected.num_kept(); ++row) {
    if (expected.rows[to_size(row)].is_padding) continue;
    for (int k = 0; k < width; ++k)
      side[to_size(row * width + k)] = values.side_value(rank, row, k);
  }
  return side;
}

ConstTensorView side_view(const Oracle& oracle, int rank, const std::vector<float>& side) {
  const std::int64_t num_rows = oracle.rank(rank).num_rows();
  if (oracle.problem().layout == Layout::kExpertMajor)
    return {side.data(), DType::kFp32, {num_rows}};
  return {side.data(), DType::kFp32, {num_rows, oracle.problem().routing.topk}};
}

}  // namespace

std::vector<RankReport> check_group(const RanksOptions& options,
                                    const GroupConfig& config,
                                    const GroupBody& body) {
  return check_ranks(options, [&](RankContext& context) {
    context.step("create");
    auto group = Group::create(context.bootstrap(), config);
    if (context.expect_ok(group.status(), "Group::create")) body(context, **group);
  });
}

std::vector<RankReport> check_problem(const Problem& problem, const GroupBody& body) {
  return check_group({.num_ranks = problem.routing.num_ranks()}, config_for(problem), body);
}

std::vector<RankReport> check_problems(const std::vector<Problem>& problems,
                                       const ProblemBody& body,
                                       const RanksOptions& options) {
  RanksOptions with_ranks = options;
  with_ranks.num_ranks = problems.front().routing.num_ranks();
  const std::vector<Oracle> oracles(problems.begin(), problems.end());
  return check_group(with_ranks, config_for(problems), [&](RankContext& context, Group& group) {
    for (const Oracle& oracle : oracles) body(context, group, oracle);
  });
}

void poison_pool(RankContext& context, Group& group, std::int64_t bytes) {
  auto tensor = group.allocate(DType::kUInt8, {bytes});
  if (!context.expect_ok(tensor.status(), "poison_pool")) return;
  poison(bytes_of(tensor->view()), Poison::kNan);
  group.write_back(*tensor);
}

std::optional<DispatchOutput> checked_dispatch(RankContext& context,
                                               Group& group,
                                               const Oracle& oracle,
                                               const DispatchSpec& spec) {
  return run_dispatch(context, group, oracle, spec,
                      [&](const DispatchInput& input, const DispatchOptions& options) {
                        return dispatch(group, input, options);
                      });
}

std::optional<DispatchOutput> checked_dispatch_cached(RankContext& context,
                                                      Group& group,
                                                      const Oracle& oracle,
                                                      const DispatchHandle& handle,
                                                      const DispatchSpec& spec) {
  return run_dispatch(context, group, oracle, spec,
                      [&](const DispatchInput& input, const DispatchOptions& options) {
                        DispatchInput cached = input;
                        cached.topk_idx = {};
                        return dispatch_cached(group, handle, cached, options);
                      });
}

CombineProblem combine_problem(const CombineSpec& spec) {
  CombineProblem combine{
      .dtype = spec.values.dtype, .hidden = spec.hidden, .weighted = spec.weighted};
  combine.rows = [values = spec.values](int owner, const ExpectedRow& row,
                                        std::span<std::byte> bytes) {
    values.fill_expert_row(owner, row, bytes);
  };
  if (spec.has_bias) {
    combine.bias = [values = bias_values(spec)](int src_rank, std::int64_t token,
                                                std::span<std::byte> bytes) {
      values.fill_token_row(src_rank, token, bytes);
    };
  }
  return combine;
}

ExpertRows::ExpertRows(Group& group, const Oracle& oracle, const CombineSpec& spec) {
  const ExpectedRank& expected = oracle.rank(group.rank());
  const std::int64_t elem_bytes = size_of(spec.values.dtype);
  const std::int64_t row_bytes = spec.hidden * elem_bytes;
  const std::int64_t stride_bytes = row_bytes + (spec.place == RowsPlace::kStrided ? kGapBytes : 0);
  std::byte* first = nullptr;
  if (spec.place == RowsPlace::kArena) {
    auto tensor = group.allocate(spec.values.dtype, {expected.num_rows(), spec.hidden});
    status_ = tensor.status();
    if (!status_.ok()) return;
    arena_ = std::move(tensor).value();
    first = arena_.data<std::byte>();
  } else {
    outside_.resize(to_size(expected.num_rows() * stride_bytes));
    first = outside_.data();
  }
  view_ = ConstTensorView(first, spec.values.dtype, {expected.num_rows(), spec.hidden});
  view_.strides[0] = stride_bytes / elem_bytes;
  poison({first, to_size(expected.num_rows() * stride_bytes)}, Poison::kNan);
  for (std::int64_t row = 0; row < expected.num_kept(); ++row) {
    const ExpectedRow& source = expected.rows[to_size(row)];
    const std::span<std::byte> bytes(first + row * stride_bytes, to_size(row_bytes));
    if (!source.is_padding) spec.values.fill_expert_row(group.rank(), source, bytes);
  }
}

std::optional<std::vector<std::byte>> checked_combine(RankContext& context,
                                                      Group& group,
                                                      const Oracle& oracle,
                                                      const DispatchHandle& handle,
                                                      const CombineSpec& spec) {
  const Problem& problem = oracle.problem();
  context.step("combine", problem.call);
  const int rank = context.rank();
  const std::int64_t num_tokens = problem.routing.ranks[to_size(rank)].num_tokens;
  const CombineProblem expected = combine_problem(spec);
  const ExpertRows rows(group, oracle, spec);
  const RankInputs inputs(problem, rank);
  const auto bias = token_rows(oracle, rank, bias_values(spec), expected.row_bytes());
  CombineInput input;
  input.rows = rows.view();
  if (spec.weighted) input.topk_weights = inputs.topk_weights();
  if (spec.has_bias)
    input.bias = ConstTensorView(bias.data(), spec.values.dtype, {num_tokens, spec.hidden});
  GuardedRows guarded(num_tokens, expected.row_bytes(), expected.row_bytes() + kGapBytes);
  CombineOptions options;
  options.way = spec.way;
  options.num_sms = spec.num_sms;
  if (spec.out == OutPlace::kGuarded) {
    options.out = TensorView(guarded.data(), spec.values.dtype, {num_tokens, spec.hidden});
    options.out.strides[0] = guarded.stride_bytes() / size_of(spec.values.dtype);
  }
  if (!context.expect_ok(rows.status(), "expert rows")) return std::nullopt;
  const auto output = combine(group, handle, input, options);
  if (!context.expect_ok(output.status(), problem.describe())) return std::nullopt;
  std::string wrong = check_combine(oracle, expected, rank, output->out);
  if (wrong.empty()) wrong = guarded.broken_canary();
  if (wrong.empty() && (spec.place != RowsPlace::kArena) != output->staged &&
      input.rows.num_elems() > 0) {
    wrong =
        output->staged ? "rows in the arena were staged" : "rows outside the arena were not staged";
  }
  if (!context.expect_nothing(wrong, "combine, " + problem.describe())) return std::nullopt;
  return packed(output->out);
}

bool checked_dispatch_backward(RankContext& context,
                               Group& group,
                               const Oracle& oracle,
                               const DispatchHandle& handle,
                               const CombineSpec& spec) {
  const Problem& problem = oracle.problem();
  context.step("dispatch_backward", problem.call);
  const ExpertRows grads(group, oracle, spec);
  const std::vector<float> side = side_values(oracle, context.rank(), spec.values);
  DispatchGradInput input;
  input.grad_x = grads.view();
  if (problem.has_weights) input.grad_topk_weights = side_view(oracle, context.rank(), side);
  CombineOptions options;
  options.way = spec.way;
  options.num_sms = spec.num_sms;
  if (!context.expect_ok(grads.status(), "gradients")) return false;
  const auto output = dispatch_backward(group, handle, input, options);
  if (!context.expect_ok(output.status(), "dispatch_backward, " + problem.describe())) return false;
  std::string wrong =
      check_combine(oracle, combine_problem(spec), context.rank(), output->grad_x.out);
  if (wrong.empty() && problem.has_weights) {
    wrong = check_router_gradient(
        oracle, context.rank(), output->grad_topk_weights.view(), [&](const RowPlace& place) {
          return spec.values.side_value(place.rank, place.row,
                                        problem.layout == Layout::kFlat ? place.first_k : 0);
        });
  }
  return context.expect_nothing(wrong, "dispatch_backward, " + problem.describe());
}

bool checked_combine_backward(RankContext& context,
                              Group& group,
                              const Oracle& oracle,
                              const DispatchHandle& handle,
                              const CombineSpec& spec) {
  const Problem& problem = oracle.problem();
  context.step("combine_backward", problem.call);
  const int rank = context.rank();
  const std::int64_t row_bytes = spec.hidden * size_of(spec.values.dtype);
  const RankInputs inputs(problem, rank);
  const ExpertRows rows(group, oracle, spec);
  const RowValues grads = bias_values(spec);
  const auto grad_out = token_rows(oracle, rank, grads, row_bytes);
  CombineGradInput input;
  const std::int64_t num_tokens = problem.routing.ranks[to_size(rank)].num_tokens;
  input.grad_out = ConstTensorView(grad_out.data(), spec.values.dtype, {num_tokens, spec.hidden});
  if (spec.weighted) input.topk_weights = inputs.topk_weights();
  if (spec.weighted) input.rows = rows.view();
  DispatchOptions options;
  options.num_sms = spec.num_sms;
  if (!context.expect_ok(rows.status(), "expert rows")) return false;
  const auto output = combine_backward(group, handle, input, options);
  if (!context.expect_ok(output.status(), "combine_backward, " + problem.describe())) return false;
  std::string wrong =
      check_row_gradient(oracle, combine_problem(spec), grads, rank, output->grad_rows.view());
  if (wrong.empty() && spec.weighted) {
    std::vector<std::byte> row(to_size(row_bytes));
    const auto dot = [&](const RowPlace& place) {
      const ExpectedRow& source = oracle.rank(place.rank).rows[to_size(place.row)];
      spec.values.fill_expert_row(place.rank, source, row);
      return dot_rows(spec.values.dtype,
                      std::span(grad_out).subspan(to_size(source.token * row_bytes), row.size()),
                      row);
    };
    wrong = check_router_gradient(oracle, rank, output->grad_topk_weights.view(), dot);
  }
  return context.expect_nothing(wrong, "combine_backward, " + problem.describe());
}

bool checked_step(RankContext& context,
                  Group& group,
                  const Oracle& oracle,
                  const DispatchSpec& dispatch,
                  const CombineSpec& combine) {
  const auto output = checked_dispatch(context, group, oracle, dispatch);
  if (!output || !checked_combine(context, group, oracle, output->handle, combine)) return false;
  if (!checked_combine_backward(context, group, oracle, output->handle, combine)) return false;
  CombineSpec backward = combine;
  backward.weighted = false;
  backward.has_bias = false;
  return checked_dispatch_backward(context, group, oracle, output->handle, backward);
}

}  // namespace ep::test
