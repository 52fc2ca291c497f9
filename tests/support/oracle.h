// SPDX-License-Identifier: Apache-2.0
// What every rank must receive and get back, computed from all ranks' inputs without any arithmetic
// of the library.
#pragma once

#include "tests/support/problem.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace ep::test {

/// One row of a receive tensor. Padding rows belong to an expert but to no token.
struct ExpectedRow {
  int src_rank = 0;
  std::int64_t token = 0;
  int expert = -1;  ///< global id; kFlat: -1, the row serves all experts of its rank
  bool is_padding = false;
};

struct ExpectedRank {
  std::vector<ExpectedRow>
      rows{};  ///< all that are needed; those at or behind the capacity are dropped
  std::optional<std::int64_t> capacity{};
  std::vector<std::int64_t> expert_counts{};
  std::vector<std::int64_t> expert_offsets{};  ///< kExpertMajor

  std::int64_t num_needed() const { return static_cast<std::int64_t>(rows.size()); }
  std::int64_t num_kept() const;
  /// Rows of the receive tensor.
  std::int64_t num_rows() const { return capacity.value_or(num_needed()); }
  bool overflows() const { return num_kept() < num_needed(); }
};

/// Where the row of one choice (token, k) lies.
struct RowPlace {
  int rank = 0;
  std::int64_t row = 0;
  int expert = 0;
  bool is_dropped = false;
  int k = 0;
  int first_k = 0;  ///< the smallest k at which the token chose this expert

  bool is_repeat() const { return first_k != k; }
};

/// The routing of one problem. Row r of rank d: see the table in ep/moe.h.
class Oracle {
 public:
  explicit Oracle(const Problem& problem);

  const Problem& problem() const { return problem_; }
  const ExpectedRank& rank(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  /// Empty for a masked choice.
  std::optional<RowPlace> place_of(int src_rank, std::int64_t token, int k) const;
  /// Sum, in k order, of the weights of all choices of the token that name the same expert as k.
  float summed_weight(int src_rank, std::int64_t token, int k) const;
  /// The same for the row of an expert.
  float weight_of(const ExpectedRow& row) const;
  /// Global ids of the experts of a rank, ascending.
  const std::vector<int>& experts_of(int rank) const {
    return owned_[static_cast<std::size_t>(rank)];
  }
  /// Position of the expert among those of its rank.
  int local_of(int expert) const { return local_of_[static_cast<std::size_t>(expert)]; }
  int owner_of(int expert) const;

 private:
  void number_experts();
  int first_k(int src_rank, std::int64_t token, std::int64_t expert) const;
  void place_flat();
  void place_expert_major();
  void append_padding(ExpectedRank& rank, int expert) const;
  std::int64_t& row_of(int src_rank, std::int64_t token, int k);

  Problem problem_;
  std::vector<ExpectedRank> ranks_;
  std::vector<std::vector<int>> owned_;
  std::vector<int> local_of_;
  std::vector<std::vector<std::int64_t>> rows_;  ///< [src rank][token * K + k]: row at its owner
};

/// Writes the row that an expert's rank returns: any function of (owner, row).
using RowSource =
    std::function<void(int owner, const ExpectedRow& row, std::span<std::byte> bytes)>;

/// What the ranks give to a combine.
struct CombineProblem {
  DType dtype = DType::kBf16;
  std::int64_t hidden = 64;
  bool weighted = false;
  RowSource rows{};
  /// The [H] bias of a token; empty function: no bias.
  std::function<void(int src_rank, std::int64_t token, std::span<std::byte> bytes)> bias{};

  std::int64_t row_bytes() const { return hidden * size_of(dtype); }
};

/// One output row of a combine.
struct CombinedRow {
  std::vector<std::byte> bytes{};  ///< exactly what the library must give
  std::vector<double> exact{};     ///< the sum in fp64
  std::vector<double> error{};     ///< half an ulp per hop, plus the fp32 additions
};

CombinedRow combine_token(const Oracle& oracle,
                          const CombineProblem& combine,
                          int src_rank,
                          std::int64_t token);

/// weight * row, rounded once, as combine_backward scales.
void scale_row(DType dtype, float weight, std::span<std::byte> row);

/// The fp32 dot product in the documented order: 256 accumulators over i mod 256, then a tree.
float dot_rows(DType dtype, std::span<const std::byte> a, std::span<const std::byte> b);

}  // namespace ep::test
