// SPDX-License-Identifier: Apache-2.0
// Loops over elements; each adds to a value and to the bound of its error.
#include "bench/reference.h"

#include <algorithm>
#include <cmath>

namespace ep::bench {

Reference::Reference(const Config& config, std::span<const ExpertFunction> experts)
    : config_(config),
      experts_(experts),
      out_dtype_(expert_dtype_of(config.dtype)),
      narrow_(static_cast<std::size_t>(config.hidden)),
      input_(narrow_.size()) {}

void Reference::compute(const RowView& input, std::span<const Term> terms) {
  widen_input(input);
  clear(total_);
  clear(hop_);
  clear(node_);
  int num_addends = 0;       // of the total
  int num_hops_of_node = 0;  // of another one
  for (std::size_t t = 0; t < terms.size(); ++t) {
    const int rank = terms[t].rank;
    const bool is_last = t + 1 == terms.size();
    add_term(terms[t]);
    if (!is_last && terms[t + 1].rank == rank) continue;
    round_sum(hop_);
    const bool is_far = node_of(rank) != node_of(config_.rank);
    add_to(is_far ? node_ : total_, hop_);
    clear(hop_);
    ++(is_far ? num_hops_of_node : num_addends);
    if (!is_far || (!is_last && node_of(terms[t + 1].rank) == node_of(rank))) continue;
    end_far_node(num_hops_of_node);
    num_hops_of_node = 0;
    ++num_addends;
  }
  // One addend is a number of the type already.
  if (num_addends > 1) round_sum(total_);
}

void Reference::end_far_node(int num_hops) {
  if (num_hops > 1) round_sum(node_);
  add_to(total_, node_);
  clear(node_);
}

void Reference::widen_input(const RowView& input) {
  widen_row({.dtype = input.dtype, .bytes = input.bytes, .scales = {}}, narrow_);
  for (std::size_t i = 0; i < input_.size(); ++i) input_[i] = static_cast<double>(narrow_[i]);
  if (input.scales.empty()) return;
  for (std::size_t i = 0; i < input_.size(); ++i) {
    input_[i] *= static_cast<double>(input.scales[i / static_cast<std::size_t>(kScaleBlock)]);
  }
}

void Reference::clear(Sum& sum) const {
  sum.value.assign(input_.size(), 0.0);
  sum.error.assign(input_.size(), 0.0);
}

void Reference::add_term(const Term& term) {
  const ExpertFunction& function = experts_[static_cast<std::size_t>(term.expert)];
  const WeightedFunction weighted = {.scale = static_cast<double>(function.scale),
                                     .shift = static_cast<double>(function.shift),
                                     .weight = static_cast<double>(term.weight)};
  const bool is_rounded = config_.layout == Layout::kExpertMajor && out_dtype_ != DType::kFp32;
  for (std::size_t i = 0; i < input_.size(); ++i) {
    double sum[] = {hop_.value[i], hop_.error[i]};
    add_function_of(input_[i], weighted, out_dtype_, is_rounded, sum);
    hop_.value[i] = sum[0];
    hop_.error[i] = sum[1];
  }
}

void Reference::round_sum(Sum& sum) const {
  if (out_dtype_ == DType::kFp32) return;  // the additions have rounded already
  for (std::size_t i = 0; i < sum.value.size(); ++i) {
    sum.error[i] += half_ulp(out_dtype_, std::fabs(sum.value[i]) + sum.error[i]);
  }
}

void Reference::add_to(Sum& sum, const Sum& addend) {
  for (std::size_t i = 0; i < sum.value.size(); ++i) {
    add_bounded(sum.value[i], sum.error[i], addend.value[i], addend.error[i]);
  }
}

std::optional<Mismatch> Reference::compare(std::span<const std::byte> row) {
  widen_row({.dtype = out_dtype_, .bytes = row, .scales = {}}, narrow_);
  for (std::size_t i = 0; i < narrow_.size(); ++i) {
    const auto actual = static_cast<double>(narrow_[i]);
    const double tolerance = config_.exact ? 0.0 : total_.error[i];
    const bool is_minus_zero = config_.exact && actual == 0 && std::signbit(actual);
    // Written so that a NaN is a mismatch.
    if (std::fabs(actual - total_.value[i]) <= tolerance && !is_minus_zero) continue;
    return Mismatch{.elem = static_cast<std::int64_t>(i),
                    .expected = total_.value[i],
                    .tolerance = tolerance,
                    .actual = actual};
  }
  return std::nullopt;
}

}  // namespace ep::bench
