// SPDX-License-Identifier: Apache-2.0
// One rank's dispatch inputs with coded payload, in memory laid out as a test asks.
#include "tests/support/moe_inputs.h"

#include "tests/support/payload.h"

#include <cstring>
#include <span>

namespace ep::test {
namespace {

// std::vector<std::byte> is aligned for rows: operator new aligns to 16.
static_assert(__STDCPP_DEFAULT_NEW_ALIGNMENT__ >= kBlockBytes);

std::size_t to_size(std::int64_t value) { return static_cast<std::size_t>(value); }

}  // namespace

RankInputs::RankInputs(const Problem& problem, int rank, const InputStrides& strides)
    : problem_(problem),
      rank_(rank),
      strides_(strides),
      num_tokens_(problem.routing.ranks[to_size(rank)].num_tokens) {
  fill_rows();
  fill_topk();
}

std::int64_t RankInputs::x_stride_bytes() const {
  return strides_.is_x_expanded ? 0 : problem_.row_bytes() + strides_.row_gap_bytes;
}

void RankInputs::fill_rows() {
  const std::int64_t row_bytes = problem_.row_bytes();
  x_.resize(to_size(strides_.first_row_bytes + num_tokens_ * x_stride_bytes() + row_bytes));
  scales_.resize(to_size(num_tokens_ * problem_.scales_bytes()));
  poison(x_, Poison::kNan);
  for (std::int64_t token = 0; token < num_tokens_; ++token) {
    const PayloadId id{.src_rank = rank_, .token = token, .call = problem_.call};
    std::byte* row = x_.data() + strides_.first_row_bytes + token * x_stride_bytes();
    if (token == 0 || !strides_.is_x_expanded) fill_row({row, to_size(row_bytes)}, id);
    fill_scales(std::span(scales_).subspan(to_size(token * problem_.scales_bytes()),
                                           to_size(problem_.scales_bytes())),
                id);
  }
}

std::int64_t RankInputs::topk_position(std::int64_t token, int k) const {
  const std::int64_t topk = problem_.routing.topk;
  if (strides_.is_topk_transposed) return k * (num_tokens_ + strides_.topk_gap_elems) + token;
  return token * (topk + strides_.topk_gap_elems) + k;
}

void RankInputs::fill_topk() {
  const int topk = problem_.routing.topk;
  const std::int64_t num_rows = strides_.is_topk_transposed ? topk : num_tokens_;
  const std::int64_t row_elems = strides_.is_topk_transposed ? num_tokens_ : topk;
  const std::int64_t num_elems = num_rows * (row_elems + strides_.topk_gap_elems);
  const int idx_bytes = size_of(problem_.idx_dtype);
  topk_idx_.resize(to_size(num_elems * idx_bytes));
  topk_weights_.resize(to_size(num_elems) * sizeof(float));
  // A wrong stride reads an expert that does not exist and a weight that is not a number.
  poison(topk_idx_, Poison::kLarge);
  poison(topk_weights_, Poison::kNan);
  for (std::int64_t token = 0; token < num_tokens_; ++token) {
    for (int k = 0; k < topk; ++k) {
      const std::int64_t position = topk_position(token, k);
      // Little endian: the low bytes of an int64 are the int32.
      const std::int64_t expert = problem_.routing.idx(rank_, token, k);
      const float weight = problem_.routing.weight(rank_, token, k);
      std::memcpy(topk_idx_.data() + position * idx_bytes, &expert, to_size(idx_bytes));
      std::memcpy(topk_weights_.data() + to_size(position) * sizeof(float), &weight, sizeof(float));
    }
  }
}

ConstTensorView RankInputs::topk_view(const std::byte* elements, DType dtype) const {
  ConstTensorView view(elements, dtype, {num_tokens_, problem_.routing.topk});
  const bool transposed = strides_.is_topk_transposed;
  view.strides[0] = transposed ? 1 : problem_.routing.topk + strides_.topk_gap_elems;
  view.strides[1] = transposed ? num_tokens_ + strides_.topk_gap_elems : 1;
  return view;
}

ConstTensorView RankInputs::topk_weights() const {
  return topk_view(topk_weights_.data(), DType::kFp32);
}

DispatchInput RankInputs::views() const {
  DispatchInput input;
  input.x = ConstTensorView(x_.data() + strides_.first_row_bytes, problem_.dtype,
                            {num_tokens_, problem_.hidden});
  input.x.strides[0] = x_stride_bytes() / size_of(problem_.dtype);
  if (problem_.num_scales > 0) {
    input.scales =
        ConstTensorView(scales_.data(), problem_.scale_dtype, {num_tokens_, problem_.num_scales});
  }
  input.topk_idx = topk_view(topk_idx_.data(), problem_.idx_dtype);
  if (problem_.has_weights) input.topk_weights = topk_weights();
  return input;
}

void RankInputs::overwrite() {
  poison(x_, Poison::kLarge);
  poison(scales_, Poison::kLarge);
  poison(topk_idx_, Poison::kLarge);
  poison(topk_weights_, Poison::kLarge);
}

}  // namespace ep::test
