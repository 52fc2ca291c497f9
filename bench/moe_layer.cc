// SPDX-License-Identifier: Apache-2.0
// Applies the experts row by row.
#include "bench/moe_layer.h"

#include "bench/hash.h"

#include <algorithm>

namespace ep::bench {
namespace {

ExpertFunction exact_function(std::uint64_t key) {
  return {.scale = (key & 1) == 0 ? 1.0F : -1.0F,
          .shift = static_cast<float>(static_cast<int>((key >> 1) % 3) - 1)};
}

ExpertFunction random_function(std::uint64_t key) {
  const float sign = (key & 1) == 0 ? 1.0F : -1.0F;
  return {.scale = sign * (0.5F + unit_float(mix(key))), .shift = unit_float(chain(key, 1)) - 0.5F};
}

void add_weighted(std::span<float> sum,
                  std::span<const float> x,
                  const ExpertFunction& function,
                  float weight) {
  for (std::size_t i = 0; i < sum.size(); ++i) {
    sum[i] += weight * (function.scale * x[i] + function.shift);
  }
}

}  // namespace

std::vector<ExpertFunction> make_experts(int num_experts, std::uint64_t seed, bool exact) {
  std::vector<ExpertFunction> functions;
  for (int expert = 0; expert < num_experts; ++expert) {
    const std::uint64_t key = chain(~seed, static_cast<std::uint64_t>(expert));
    functions.push_back(exact ? exact_function(key) : random_function(key));
  }
  return functions;
}

LocalExperts::LocalExperts(std::span<const ExpertFunction> all, const ExpertMap& map, int rank) {
  for (int expert : map.experts_of(rank)) {
    functions_.push_back(all[static_cast<std::size_t>(expert)]);
  }
}

void LocalExperts::widen(const ExpertRows& io, std::int64_t row) {
  input_.resize(static_cast<std::size_t>(io.hidden));
  sum_.resize(input_.size());
  const auto row_bytes = static_cast<std::size_t>(io.hidden * size_of(io.dtype));
  const auto num_scales = static_cast<std::size_t>(io.num_scales);
  const auto index = static_cast<std::size_t>(row);
  const float* scales = num_scales == 0 ? nullptr : io.scales + index * num_scales;
  widen_row({.dtype = io.dtype,
             .bytes = {io.rows + index * row_bytes, row_bytes},
             .scales = {scales, num_scales}},
            input_);
}

void LocalExperts::narrow(const ExpertRows& io, std::int64_t row) {
  const DType dtype = expert_dtype_of(io.dtype);
  const auto row_bytes = static_cast<std::size_t>(io.hidden * size_of(dtype));
  narrow_row(sum_, dtype, {io.out + static_cast<std::size_t>(row) * row_bytes, row_bytes});
}

void LocalExperts::apply_flat(const ExpertRows& io,
                              std::int64_t num_rows,
                              std::span<const std::int64_t> topk_idx,
                              std::span<const float> topk_weights) {
  const std::size_t topk = num_rows == 0 ? 0 : topk_idx.size() / static_cast<std::size_t>(num_rows);
  for (std::int64_t row = 0; row < num_rows; ++row) {
    widen(io, row);
    std::fill(sum_.begin(), sum_.end(), 0.0F);
    const std::size_t first = static_cast<std::size_t>(row) * topk;
    for (std::size_t i = first; i < first + topk; ++i) {
      if (topk_idx[i] < 0) continue;
      add_weighted(sum_, input_, functions_[static_cast<std::size_t>(topk_idx[i])],
                   topk_weights[i]);
    }
    narrow(io, row);
  }
}

void LocalExperts::apply_expert(const ExpertRows& io,
                                int local_expert,
                                std::int64_t first,
                                std::int64_t count) {
  const ExpertFunction function = functions_[static_cast<std::size_t>(local_expert)];
  for (std::int64_t row = first; row < first + count; ++row) {
    widen(io, row);
    for (std::size_t i = 0; i < sum_.size(); ++i) {
      sum_[i] = function.scale * input_[i] + function.shift;
    }
    narrow(io, row);
  }
}

}  // namespace ep::bench
