// SPDX-License-Identifier: Apache-2.0
// What every rank must receive and get back, computed from all ranks' inputs without any arithmetic
// of the library.
#include "tests/support/oracle.h"

#include "tests/support/number_formats.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace ep::test {
namespace {

constexpr std::int64_t kNoRow = -1;

struct Term {
  int owner = 0;
  const ExpectedRow* row = nullptr;
  float weight = 1.0F;
};

/// The sum of one output row while it is built; a hop is what one rank contributes. Ranks of
/// another node cross a link together once more.
class RowSum {
 public:
  RowSum(DType dtype, std::int64_t hidden)
      : dtype_(dtype),
        total_(static_cast<std::size_t>(hidden)),
        hop_(total_.size()),
        node_(total_.size()),
        exact_(total_.size()),
        exact_hop_(total_.size()),
        error_(total_.size()),
        magnitude_(total_.size()) {}

  void add(std::span<const std::byte> row, std::optional<float> weight);
  /// Into the total, or into the sum of another node.
  void end_hop(bool is_far);
  void end_far_node();
  void add_bias(std::span<const std::byte> bias);
  CombinedRow finish() const;

 private:
  float element(std::span<const std::byte> row, std::size_t at) const {
    return widen(dtype_, row.data() + at * static_cast<std::size_t>(size_of(dtype_)));
  }

  DType dtype_;
  std::vector<float> total_;
  std::vector<float> hop_;
  std::vector<float> node_;
  std::vector<double> exact_;
  std::vector<double> exact_hop_;
  std::vector<double> error_;
  std::vector<double> magnitude_;  ///< sum of |terms|: the fp32 additions err by a fraction of it
  bool has_total_ = false;
  bool has_hop_ = false;
  bool has_node_ = false;
  int num_additions_ = 0;
};

void RowSum::add(std::span<const std::byte> row, std::optional<float> weight) {
  for (std::size_t at = 0; at < hop_.size(); ++at) {
    const float value = element(row, at);
    const float scaled = weight ? *weight * value : value;
    hop_[at] = has_hop_ ? hop_[at] + scaled : scaled;
    const double exact = static_cast<double>(weight.value_or(1.0F)) * static_cast<double>(value);
    exact_hop_[at] += exact;
    magnitude_[at] += std::fabs(exact);
  }
  has_hop_ = true;
  num_additions_ += 2;
}

void RowSum::end_hop(bool is_far) {
  if (!has_hop_) return;
  std::array<std::byte, sizeof(float)> rounded{};
  std::vector<float>& sum = is_far ? node_ : total_;
  bool& has_sum = is_far ? has_node_ : has_total_;
  for (std::size_t at = 0; at < hop_.size(); ++at) {
    narrow(dtype_, hop_[at], rounded.data());
    const float crossed = widen(dtype_, rounded.data());
    sum[at] = has_sum ? sum[at] + crossed : crossed;
    exact_[at] += exact_hop_[at];
    error_[at] += ulp_at(dtype_, static_cast<double>(hop_[at])) / 2;
    exact_hop_[at] = 0.0;
  }
  has_sum = true;
  has_hop_ = false;
  ++num_additions_;
}

void RowSum::end_far_node() {
  if (!has_node_) return;
  std::array<std::byte, sizeof(float)> rounded{};
  for (std::size_t at = 0; at < node_.size(); ++at) {
    narrow(dtype_, node_[at], rounded.data());
    const float crossed = widen(dtype_, rounded.data());
    total_[at] = has_total_ ? total_[at] + crossed : crossed;
    error_[at] += ulp_at(dtype_, static_cast<double>(node_[at])) / 2;
  }
  has_total_ = true;
  has_node_ = false;
  ++num_additions_;
}

void RowSum::add_bias(std::span<const std::byte> bias) {
  for (std::size_t at = 0; at < total_.size(); ++at) {
    const float value = element(bias, at);
    total_[at] = total_[at] + value;  // +0 without rows
    exact_[at] += static_cast<double>(value);
    magnitude_[at] += std::fabs(static_cast<double>(value));
  }
  has_total_ = true;
  ++num_additions_;
}

CombinedRow RowSum::finish() const {
  CombinedRow row{.exact = exact_, .error = error_};
  const auto elem_bytes = static_cast<std::size_t>(size_of(dtype_));
  row.bytes.resize(total_.size() * elem_bytes);
  constexpr double kFp32Error = 0x1p-24;
  for (std::size_t at = 0; at < total_.size(); ++at) {
    narrow(dtype_, total_[at], row.bytes.data() + at * elem_bytes);
    row.error[at] += ulp_at(dtype_, static_cast<double>(total_[at])) / 2;
    row.error[at] += num_additions_ * kFp32Error * magnitude_[at];
  }
  return row;
}

/// The kept rows of one token: ranks ascending, within a rank in k order.
std::vector<Term> terms_of(const Oracle& oracle, int src_rank, std::int64_t token) {
  const Problem& problem = oracle.problem();
  std::vector<Term> terms;
  for (int owner = 0; owner < problem.routing.num_ranks(); ++owner) {
    for (int k = 0; k < problem.routing.topk; ++k) {
      const auto place = oracle.place_of(src_rank, token, k);
      if (!place || place->rank != owner || place->is_repeat() || place->is_dropped) continue;
      const ExpectedRow* row = &oracle.rank(owner).rows[static_cast<std::size_t>(place->row)];
      const bool is_second_choice =
          problem.layout == Layout::kFlat && !terms.empty() && terms.back().row == row;
      if (is_second_choice) continue;
      terms.push_back({owner, row, oracle.summed_weight(src_rank, token, k)});
    }
  }
  return terms;
}

}  // namespace

std::int64_t ExpectedRank::num_kept() const {
  return capacity ? std::min(*capacity, num_needed()) : num_needed();
}

Oracle::Oracle(const Problem& problem)
    : problem_(problem), ranks_(static_cast<std::size_t>(problem.routing.num_ranks())) {
  number_experts();
  for (const RankTokens& tokens : problem_.routing.ranks) {
    rows_.emplace_back(tokens.topk_idx.size(), kNoRow);
  }
  for (int rank = 0; rank < problem_.routing.num_ranks(); ++rank) {
    ranks_[static_cast<std::size_t>(rank)].capacity = problem_.capacity_of(rank);
  }
  if (problem_.layout == Layout::kFlat) {
    place_flat();
  } else {
    place_expert_major();
  }
}

int Oracle::owner_of(int expert) const {
  return problem_.routing.expert_to_rank[static_cast<std::size_t>(expert)];
}

void Oracle::number_experts() {
  owned_.resize(ranks_.size());
  for (int expert = 0; expert < problem_.routing.num_experts(); ++expert) {
    auto& owned = owned_[static_cast<std::size_t>(owner_of(expert))];
    local_of_.push_back(static_cast<int>(owned.size()));
    owned.push_back(expert);
  }
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    ranks_[rank].expert_counts.resize(owned_[rank].size());
  }
}

int Oracle::first_k(int src_rank, std::int64_t token, std::int64_t expert) const {
  int k = 0;
  while (problem_.routing.idx(src_rank, token, k) != expert) ++k;
  return k;
}

std::int64_t& Oracle::row_of(int src_rank, std::int64_t token, int k) {
  return rows_[static_cast<std::size_t>(src_rank)]
              [static_cast<std::size_t>(token * problem_.routing.topk + k)];
}

void Oracle::place_flat() {
  for (int src = 0; src < problem_.routing.num_ranks(); ++src) {
    for (std::int64_t token = 0;
         token < problem_.routing.ranks[static_cast<std::size_t>(src)].num_tokens; ++token) {
      for (int k = 0; k < problem_.routing.topk; ++k) {
        const auto expert = static_cast<int>(problem_.routing.idx(src, token, k));
        if (expert < 0) continue;
        ExpectedRank& owner = ranks_[static_cast<std::size_t>(owner_of(expert))];
        const bool has_row = !owner.rows.empty() && owner.rows.back().src_rank == src &&
                             owner.rows.back().token == token;
        if (!has_row) owner.rows.push_back({.src_rank = src, .token = token});
        row_of(src, token, k) = owner.num_needed() - 1;
        if (first_k(src, token, expert) == k)
          ++owner.expert_counts[static_cast<std::size_t>(local_of(expert))];
      }
    }
  }
}

void Oracle::append_padding(ExpectedRank& rank, int expert) const {
  while (rank.num_needed() % problem_.alignment != 0) {
    rank.rows.push_back({.expert = expert, .is_padding = true});
  }
}

void Oracle::place_expert_major() {
  const Routing& routing = problem_.routing;
  struct Choice {
    int src_rank;
    std::int64_t token;
    int k;
  };
  std::vector<std::vector<Choice>> chosen(static_cast<std::size_t>(routing.num_experts()));
  for (int src = 0; src < routing.num_ranks(); ++src) {
    for (std::int64_t token = 0; token < routing.ranks[static_cast<std::size_t>(src)].num_tokens;
         ++token) {
      for (int k = 0; k < routing.topk; ++k) {
        const std::int64_t expert = routing.idx(src, token, k);
        if (expert >= 0) chosen[static_cast<std::size_t>(expert)].push_back({src, token, k});
      }
    }
  }
  for (int expert = 0; expert < routing.num_experts(); ++expert) {
    ExpectedRank& owner = ranks_[static_cast<std::size_t>(owner_of(expert))];
    owner.expert_offsets.push_back(owner.num_needed());
    auto& count = owner.expert_counts[static_cast<std::size_t>(local_of(expert))];
    for (const Choice& choice : chosen[static_cast<std::size_t>(expert)]) {
      if (first_k(choice.src_rank, choice.token, expert) == choice.k) {
        owner.rows.push_back(
            {.src_rank = choice.src_rank, .token = choice.token, .expert = expert});
        ++count;
      }
      row_of(choice.src_rank, choice.token, choice.k) = owner.num_needed() - 1;
    }
    append_padding(owner, expert);
  }
  for (ExpectedRank& rank : ranks_) rank.expert_offsets.push_back(rank.num_needed());
}

std::optional<RowPlace> Oracle::place_of(int src_rank, std::int64_t token, int k) const {
  const auto expert = static_cast<int>(problem_.routing.idx(src_rank, token, k));
  if (expert < 0) return std::nullopt;
  const auto at = static_cast<std::size_t>(token * problem_.routing.topk + k);
  const std::int64_t row = rows_[static_cast<std::size_t>(src_rank)][at];
  const ExpectedRank& owner = rank(owner_of(expert));
  return RowPlace{.rank = owner_of(expert),
                  .row = row,
                  .expert = expert,
                  .is_dropped = row >= owner.num_kept(),
                  .k = k,
                  .first_k = first_k(src_rank, token, expert)};
}

float Oracle::summed_weight(int src_rank, std::int64_t token, int k) const {
  const Routing& routing = problem_.routing;
  const std::int64_t expert = routing.idx(src_rank, token, k);
  std::optional<float> sum;
  for (int other = 0; other < routing.topk; ++other) {
    if (routing.idx(src_rank, token, other) != expert) continue;
    const float weight = routing.weight(src_rank, token, other);
    sum = sum ? *sum + weight : weight;
  }
  return sum.value_or(0.0F);
}

float Oracle::weight_of(const ExpectedRow& row) const {
  return summed_weight(row.src_rank, row.token, first_k(row.src_rank, row.token, row.expert));
}

CombinedRow combine_token(const Oracle& oracle,
                          const CombineProblem& combine,
                          int src_rank,
                          std::int64_t token) {
  const std::vector<Term> terms = terms_of(oracle, src_rank, token);
  std::vector<std::byte> row(static_cast<std::size_t>(combine.row_bytes()));
  RowSum sum(combine.dtype, combine.hidden);
  for (std::size_t at = 0; at < terms.size(); ++at) {
    combine.rows(terms[at].owner, *terms[at].row, row);
    sum.add(row, combine.weighted ? std::optional<float>(terms[at].weight) : std::nullopt);
    const int owner = terms[at].owner;
    const bool is_last = at + 1 == terms.size();
    const bool is_far = !oracle.problem().are_on_one_node(owner, src_rank);
    if (is_last || terms[at + 1].owner != owner) sum.end_hop(is_far);
    if (is_last || !oracle.problem().are_on_one_node(terms[at + 1].owner, owner))
      sum.end_far_node();
  }
  const bool is_copy = terms.size() == 1 && !combine.weighted && !combine.bias;
  if (combine.bias) {
    combine.bias(src_rank, token, row);
    sum.add_bias(row);
  }
  CombinedRow result = sum.finish();
  if (is_copy) result.bytes = row;
  return result;
}

void scale_row(DType dtype, float weight, std::span<std::byte> row) {
  const auto elem_bytes = static_cast<std::size_t>(size_of(dtype));
  for (std::size_t at = 0; at < row.size(); at += elem_bytes) {
    narrow(dtype, weight * widen(dtype, row.data() + at), row.data() + at);
  }
}

float dot_rows(DType dtype, std::span<const std::byte> a, std::span<const std::byte> b) {
  constexpr std::size_t kAccumulators = 256;
  std::array<float, kAccumulators> sums{};
  const auto elem_bytes = static_cast<std::size_t>(size_of(dtype));
  for (std::size_t i = 0; i * elem_bytes < a.size(); ++i) {
    const float product =
        widen(dtype, a.data() + i * elem_bytes) * widen(dtype, b.data() + i * elem_bytes);
    sums[i % kAccumulators] = sums[i % kAccumulators] + product;
  }
  for (std::size_t width = kAccumulators / 2; width >= 1; width /= 2) {
    for (std::size_t i = 0; i < width; ++i) sums[i] = sums[i] + sums[i + width];
  }
  constexpr std::uint32_t kNan = 0x7FFFFFFF;
  return std::isnan(sums[0]) ? std::bit_cast<float>(kNan) : sums[0];
}

}  // namespace ep::test
