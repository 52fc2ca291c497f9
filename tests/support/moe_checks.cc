// SPDX-License-Identifier: Apache-2.0
// Compares what the library returned with the oracle, byte by byte; an empty string means right.
#include "tests/support/moe_checks.h"

#include "tests/support/number_formats.h"
#include "tests/support/payload.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <sstream>

namespace ep::test {
namespace {

std::size_t to_size(std::int64_t value) { return static_cast<std::size_t>(value); }

template <class T>
T elem_at(const TensorView& view, std::int64_t index) {
  T value;
  std::memcpy(
      &value,
      static_cast<const std::byte*>(view.data) + index * static_cast<std::int64_t>(sizeof(T)),
      sizeof(T));
  return value;
}

std::int64_t int_at(const TensorView& view, std::int64_t index) {
  return view.dtype == DType::kInt32 ? elem_at<std::int32_t>(view, index)
                                     : elem_at<std::int64_t>(view, index);
}

std::span<const std::byte> row_of(const TensorView& view, std::int64_t row) {
  const std::int64_t elem_bytes = size_of(view.dtype);
  return {static_cast<const std::byte*>(view.data) + row * view.stride(0) * elem_bytes,
          to_size(view.size(1) * elem_bytes)};
}

std::string check_shape(const char* name,
                        const TensorView& view,
                        DType dtype,
                        std::initializer_list<std::int64_t> shape) {
  const TensorView expected(nullptr, dtype, shape);
  const bool is_right =
      view.dtype == dtype && view.num_dims == expected.num_dims && view.shape == expected.shape;
  if (is_right) return "";
  return std::string(name) + " is " + to_string(view) + ", expected " + to_string(expected);
}

std::string check_ints(const char* name,
                       const Tensor& tensor,
                       const std::vector<std::int64_t>& expected) {
  const auto size = static_cast<std::int64_t>(expected.size());
  if (auto wrong = check_shape(name, tensor.view(), DType::kInt64, {size}); !wrong.empty())
    return wrong;
  for (std::int64_t at = 0; at < size; ++at) {
    const std::int64_t got = int_at(tensor.view(), at);
    if (got == expected[to_size(at)]) continue;
    return std::string(name) + "[" + std::to_string(at) + "] = " + std::to_string(got) +
           ", expected " + std::to_string(expected[to_size(at)]);
  }
  return "";
}

std::string check_numbers(const Oracle& oracle, int rank, const DispatchOutput& output) {
  const ExpectedRank& expected = oracle.rank(rank);
  const std::vector<std::int64_t> sizes{expected.num_kept(), expected.num_needed(),
                                        expected.overflows() ? 1 : 0};
  std::string wrong = check_ints("sizes", output.sizes, sizes);
  if (wrong.empty())
    wrong = check_ints("expert_counts", output.expert_counts, expected.expert_counts);
  if (wrong.empty() && oracle.problem().layout == Layout::kExpertMajor) {
    wrong = check_ints("expert_offsets", output.expert_offsets, expected.expert_offsets);
  }
  return wrong;
}

std::string check_handle(const Oracle& oracle, int rank, const DispatchHandle& handle) {
  const Problem& problem = oracle.problem();
  if (handle.is_null()) return "the handle is null";
  const bool is_right =
      handle.layout() == problem.layout && handle.topk() == problem.routing.topk &&
      handle.num_tokens() == problem.routing.ranks[to_size(rank)].num_tokens &&
      handle.num_experts() == problem.routing.num_experts() &&
      handle.num_local_experts() == static_cast<int>(oracle.experts_of(rank).size());
  return is_right ? "" : "the handle describes another dispatch";
}

std::string check_shapes(const Oracle& oracle,
                         int rank,
                         const DispatchOutput& output,
                         const DispatchCheck& check) {
  const Problem& problem = oracle.problem();
  const std::int64_t num_rows = oracle.rank(rank).num_rows();
  const bool is_flat = problem.layout == Layout::kFlat;
  std::string wrong = check_shape("x", output.x.view(), problem.dtype, {num_rows, problem.hidden});
  if (wrong.empty() && problem.num_scales > 0) {
    wrong = check_shape("scales", output.scales.view(), problem.scale_dtype,
                        {num_rows, problem.num_scales});
  }
  if (wrong.empty() && is_flat && check.has_topk_idx) {
    wrong = check_shape("topk_idx", output.topk_idx.view(), problem.idx_dtype,
                        {num_rows, problem.routing.topk});
  }
  if (!wrong.empty() || !problem.has_weights) return wrong;
  if (!is_flat)
    return check_shape("topk_weights", output.topk_weights.view(), DType::kFp32, {num_rows});
  return check_shape("topk_weights", output.topk_weights.view(), DType::kFp32,
                     {num_rows, problem.routing.topk});
}

bool is_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](std::byte value) { return value == std::byte{0}; });
}

std::string check_padding_row(const Problem& problem,
                              const DispatchOutput& output,
                              std::int64_t row) {
  if (!is_zero(row_of(output.x.view(), row))) return "x is not zero";
  if (problem.num_scales > 0 && !is_zero(row_of(output.scales.view(), row)))
    return "scales are not zero";
  if (!problem.has_weights) return "";
  const bool is_positive_zero = elem_at<std::uint32_t>(output.topk_weights.view(), row) == 0;
  return is_positive_zero ? "" : "the weight is not zero";
}

std::string wrong_weight(float got, float expected) {
  if (std::bit_cast<std::uint32_t>(got) == std::bit_cast<std::uint32_t>(expected)) return "";
  std::ostringstream text;
  text.precision(9);
  text << "weight " << got << ", expected " << expected;
  return text.str();
}

/// topk_idx and topk_weights of a flat row.
std::string check_choices(const Oracle& oracle,
                          int rank,
                          const DispatchOutput& output,
                          std::int64_t index) {
  const Problem& problem = oracle.problem();
  const ExpectedRow& row = oracle.rank(rank).rows[to_size(index)];
  for (int k = 0; k < problem.routing.topk; ++k) {
    const auto place = oracle.place_of(row.src_rank, row.token, k);
    const bool is_here = place && place->rank == rank && !place->is_repeat();
    const std::int64_t expert = is_here ? oracle.local_of(place->expert) : -1;
    const std::int64_t at = index * problem.routing.topk + k;
    if (!output.topk_idx.view().is_null() && int_at(output.topk_idx.view(), at) != expert) {
      return "topk_idx[" + std::to_string(k) +
             "] = " + std::to_string(int_at(output.topk_idx.view(), at)) + ", expected " +
             std::to_string(expert);
    }
    if (!problem.has_weights) continue;
    const float weight = is_here ? oracle.summed_weight(row.src_rank, row.token, k) : 0.0F;
    const std::string wrong = wrong_weight(elem_at<float>(output.topk_weights.view(), at), weight);
    if (!wrong.empty()) return "k " + std::to_string(k) + ": " + wrong;
  }
  return "";
}

std::string check_expert_weight(const Oracle& oracle,
                                int rank,
                                const DispatchOutput& output,
                                std::int64_t index) {
  if (!oracle.problem().has_weights) return "";
  const ExpectedRow& row = oracle.rank(rank).rows[to_size(index)];
  return wrong_weight(elem_at<float>(output.topk_weights.view(), index), oracle.weight_of(row));
}

std::string check_row(const Oracle& oracle,
                      int rank,
                      const DispatchOutput& output,
                      std::int64_t index,
                      const DispatchCheck& check) {
  const Problem& problem = oracle.problem();
  const ExpectedRow& row = oracle.rank(rank).rows[to_size(index)];
  if (row.is_padding) return check_padding_row(problem, output, index);
  const PayloadId id{.src_rank = row.src_rank, .token = row.token, .call = problem.call};
  PayloadId x_id = id;
  if (check.is_x_expanded) x_id.token = 0;
  std::string wrong = row_mismatch(row_of(output.x.view(), index), x_id);
  if (wrong.empty() && problem.num_scales > 0)
    wrong = scales_mismatch(row_of(output.scales.view(), index), id);
  if (!wrong.empty()) return wrong;
  return problem.layout == Layout::kFlat ? check_choices(oracle, rank, output, index)
                                         : check_expert_weight(oracle, rank, output, index);
}

std::string show(DType dtype, std::span<const std::byte> bytes, std::size_t elem) {
  std::ostringstream text;
  text.precision(9);
  const std::byte* at = bytes.data() + elem * to_size(size_of(dtype));
  text << widen(dtype, at) << " (0x" << std::hex;
  for (int byte = size_of(dtype) - 1; byte >= 0; --byte) {
    const int value = std::to_integer<int>(at[byte]);
    text << (value < 16 ? "0" : "") << value;
  }
  text << ")";
  return text.str();
}

/// The first element that differs.
std::string compare_rows(DType dtype,
                         std::span<const std::byte> got,
                         std::span<const std::byte> expected) {
  const auto elem_bytes = to_size(size_of(dtype));
  for (std::size_t at = 0; at < expected.size(); at += elem_bytes) {
    if (std::memcmp(got.data() + at, expected.data() + at, elem_bytes) == 0) continue;
    const std::size_t elem = at / elem_bytes;
    return "element " + std::to_string(elem) + " = " + show(dtype, got, elem) + ", expected " +
           show(dtype, expected, elem);
  }
  return "";
}

std::string compare_exact(DType dtype,
                          std::span<const std::byte> got,
                          const CombinedRow& expected) {
  for (std::size_t elem = 0; elem < expected.exact.size(); ++elem) {
    const double exact = expected.exact[elem];
    const auto value =
        static_cast<double>(widen(dtype, got.data() + elem * to_size(size_of(dtype))));
    if (!std::isfinite(exact) || !std::isfinite(value)) continue;
    if (std::fabs(value - exact) <= expected.error[elem]) continue;
    std::ostringstream text;
    text.precision(17);
    text << "element " << elem << " = " << value << " differs from fp64 " << exact
         << " by more than " << expected.error[elem];
    return text.str();
  }
  return "";
}

}  // namespace

std::span<std::byte> bytes_of(const TensorView& view) {
  return {static_cast<std::byte*>(view.data), to_size(view.num_elems() * size_of(view.dtype))};
}

std::string check_dispatch(const Oracle& oracle,
                           int rank,
                           const DispatchOutput& output,
                           const DispatchCheck& check) {
  std::string wrong = check_numbers(oracle, rank, output);
  if (wrong.empty()) wrong = check_handle(oracle, rank, output.handle);
  if (wrong.empty()) wrong = check_shapes(oracle, rank, output, check);
  if (!wrong.empty()) return wrong;
  const std::int64_t num_kept = oracle.rank(rank).num_kept();
  for (std::int64_t row = 0; row < num_kept;) {
    wrong = check_row(oracle, rank, output, row, check);
    if (!wrong.empty()) return "row " + std::to_string(row) + ": " + wrong;
    row = row == num_kept - 1 ? num_kept : std::min(row + check.row_step, num_kept - 1);
  }
  return "";
}

std::string check_combine(const Oracle& oracle,
                          const CombineProblem& combine,
                          int rank,
                          const TensorView& out,
                          std::int64_t token_step) {
  const std::int64_t num_tokens = oracle.problem().routing.ranks[to_size(rank)].num_tokens;
  if (auto wrong = check_shape("out", out, combine.dtype, {num_tokens, combine.hidden});
      !wrong.empty())
    return wrong;
  for (std::int64_t token = 0; token < num_tokens; token += token_step) {
    const CombinedRow expected = combine_token(oracle, combine, rank, token);
    std::string wrong = compare_rows(combine.dtype, row_of(out, token), expected.bytes);
    if (wrong.empty()) wrong = compare_exact(combine.dtype, row_of(out, token), expected);
    if (!wrong.empty()) return "token " + std::to_string(token) + ": " + wrong;
  }
  return "";
}

std::string check_router_gradient(const Oracle& oracle,
                                  int rank,
                                  const TensorView& gradient,
                                  const std::function<float(const RowPlace& place)>& expected) {
  const Routing& routing = oracle.problem().routing;
  const std::int64_t num_tokens = routing.ranks[to_size(rank)].num_tokens;
  std::string wrong =
      check_shape("grad_topk_weights", gradient, DType::kFp32, {num_tokens, routing.topk});
  for (std::int64_t at = 0; wrong.empty() && at < num_tokens * routing.topk; ++at) {
    const std::int64_t token = at / routing.topk;
    const int k = static_cast<int>(at % routing.topk);
    const auto place = oracle.place_of(rank, token, k);
    const float value = place && !place->is_dropped ? expected(*place) : 0.0F;
    wrong = wrong_weight(elem_at<float>(gradient, at), value);
    if (!wrong.empty())
      wrong =
          "token " + std::to_string(token) + ", k " + std::to_string(k) + ": gradient as " + wrong;
  }
  return wrong;
}

std::string check_row_gradient(const Oracle& oracle,
                               const CombineProblem& combine,
                               const RowValues& grad_out,
                               int rank,
                               const TensorView& grad_rows) {
  const ExpectedRank& expected = oracle.rank(rank);
  const std::string wrong_shape =
      check_shape("grad_rows", grad_rows, combine.dtype, {expected.num_rows(), combine.hidden});
  if (!wrong_shape.empty()) return wrong_shape;
  std::vector<std::byte> bytes(to_size(combine.row_bytes()));
  for (std::int64_t index = 0; index < expected.num_kept(); ++index) {
    const ExpectedRow& row = expected.rows[to_size(index)];
    std::fill(bytes.begin(), bytes.end(), std::byte{0});
    if (!row.is_padding) grad_out.fill_token_row(row.src_rank, row.token, bytes);
    if (!row.is_padding && combine.weighted)
      scale_row(grad_out.dtype, oracle.weight_of(row), bytes);
    const std::string wrong = compare_rows(grad_out.dtype, row_of(grad_rows, index), bytes);
    if (!wrong.empty()) return "row " + std::to_string(index) + ": " + wrong;
  }
  return "";
}

}  // namespace ep::test
