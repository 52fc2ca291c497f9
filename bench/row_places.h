// SPDX-License-Identifier: Apache-2.0
// Where every row of a dispatch must end up, computed by one rank for all, independently of the
// library.
#pragma once

#include "bench/routing.h"

#include <ep/expert_map.h>
#include <ep/moe.h>

#include <cstdint>
#include <vector>

namespace ep::bench {

struct PlacesConfig {
  Layout layout = Layout::kFlat;
  int align = 1;
  ExpertMap map;
};

/// What one rank receives.
struct Received {
  /// kFlat: rows; kExpertMajor: end of the last expert's padded group.
  std::int64_t num_rows = 0;
  /// By local expert: (token, expert) pairs, a repeat counts once.
  std::vector<std::int64_t> expert_counts;
  /// kExpertMajor: first row of each group and the end of the last.
  std::vector<std::int64_t> expert_offsets;
};

class RowPlaces {
 public:
  /// `choices` of all ranks, kept by reference.
  RowPlaces(const PlacesConfig& config, const std::vector<RankChoices>& choices, int topk);

  const Received& received(int rank) const { return received_[static_cast<std::size_t>(rank)]; }
  const std::vector<RankChoices>& choices() const { return choices_; }
  const PlacesConfig& config() const { return config_; }
  int topk() const { return topk_; }

  /// Row, at the rank of the expert, of the k-th choice of a token; kNoRow if the choice is -1 or
  /// repeats an earlier one. In kFlat all choices on one rank share the row.
  std::int64_t row(int src_rank, std::int64_t token, int k) const {
    const auto index = static_cast<std::size_t>(token * topk_ + k);
    return rows_[static_cast<std::size_t>(src_rank)][index];
  }
  static constexpr std::int64_t kNoRow = -1;

  /// Rows that tokens of `src_rank` become: what it writes in a dispatch and reads in a combine.
  /// Rows beyond `capacity` of their rank do not count.
  struct Traffic {
    std::int64_t rows = 0;
    /// Pairs of a token and another rank: rows that must cross from rank to rank.
    std::int64_t crossing = 0;
    /// Those of them that cross from GPU to GPU.
    std::int64_t wire = 0;
  };
  /// `num_gpus`: ranks take them in turn; 0 if there are none.
  Traffic traffic_of(int src_rank, std::int64_t capacity, int num_gpus = 0) const;

 private:
  void count_experts();
  void place_flat();
  void place_expert_major();

  PlacesConfig config_;
  const std::vector<RankChoices>& choices_;
  int topk_;
  std::vector<Received> received_;
  std::vector<std::vector<std::int64_t>> rows_;  // by source rank, [T, K]
};

}  // namespace ep::bench
