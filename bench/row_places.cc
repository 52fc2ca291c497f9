// SPDX-License-Identifier: Apache-2.0
// Walks all tokens in the order of source rank and token, which is the order of the rows.
#include "bench/row_places.h"

#include "bench/gpu_info.h"

#include <algorithm>
#include <limits>

namespace ep::bench {
namespace {

/// Calls `visit(src_rank, token, distinct experts)` for every token of all ranks.
template <class Visit>
void for_each_token(const std::vector<RankChoices>& choices, int topk, Visit visit) {
  std::vector<WeightedExpert> experts;
  const auto width = static_cast<std::size_t>(topk);
  for (std::size_t rank = 0; rank < choices.size(); ++rank) {
    const RankChoices& own = choices[rank];
    for (std::int64_t token = 0; token < own.num_tokens; ++token) {
      const std::size_t first = static_cast<std::size_t>(token) * width;
      distinct_experts(std::span(own.topk_idx).subspan(first, width),
                       std::span(own.topk_weights).subspan(first, width), experts);
      visit(rank, token, experts);
    }
  }
}

std::int64_t padded(std::int64_t count, int align) { return (count + align - 1) / align * align; }

}  // namespace

RowPlaces::RowPlaces(const PlacesConfig& config, const std::vector<RankChoices>& choices, int topk)
    : config_(config), choices_(choices), topk_(topk) {
  received_.resize(choices.size());
  for (std::size_t rank = 0; rank < choices.size(); ++rank) {
    const int num_local = config_.map.num_local(static_cast<int>(rank));
    received_[rank].expert_counts.assign(static_cast<std::size_t>(num_local), 0);
    rows_.emplace_back(choices[rank].topk_idx.size(), kNoRow);
  }
  count_experts();
  config_.layout == Layout::kFlat ? place_flat() : place_expert_major();
}

void RowPlaces::count_experts() {
  for_each_token(choices_, topk_, [this](std::size_t, std::int64_t, const auto& experts) {
    for (const WeightedExpert& choice : experts) {
      Received& owner = received_[static_cast<std::size_t>(config_.map.rank_of(choice.expert))];
      ++owner.expert_counts[static_cast<std::size_t>(config_.map.local_of(choice.expert))];
    }
  });
}

void RowPlaces::place_flat() {
  std::vector<std::int64_t> row_at(received_.size());  // of the current token at each rank
  for_each_token(choices_, topk_, [&](std::size_t src, std::int64_t token, const auto& experts) {
    std::fill(row_at.begin(), row_at.end(), kNoRow);
    for (const WeightedExpert& choice : experts) {
      const auto owner = static_cast<std::size_t>(config_.map.rank_of(choice.expert));
      if (row_at[owner] == kNoRow) row_at[owner] = received_[owner].num_rows++;
      rows_[src][static_cast<std::size_t>(token * topk_ + choice.first_k)] = row_at[owner];
    }
  });
}

void RowPlaces::place_expert_major() {
  std::vector<std::vector<std::int64_t>> next;  // by rank and local expert
  for (Received& owner : received_) {
    std::int64_t offset = 0;
    for (std::int64_t count : owner.expert_counts) {
      owner.expert_offsets.push_back(offset);
      offset += padded(count, config_.align);
    }
    next.push_back(owner.expert_offsets);
    owner.expert_offsets.push_back(offset);
    owner.num_rows = offset;
  }
  for_each_token(choices_, topk_, [&](std::size_t src, std::int64_t token, const auto& experts) {
    for (const WeightedExpert& choice : experts) {
      const auto owner = static_cast<std::size_t>(config_.map.rank_of(choice.expert));
      const auto local = static_cast<std::size_t>(config_.map.local_of(choice.expert));
      rows_[src][static_cast<std::size_t>(token * topk_ + choice.first_k)] = next[owner][local]++;
    }
  });
}

RowPlaces::Traffic RowPlaces::traffic_of(int src_rank, std::int64_t capacity, int num_gpus) const {
  const RankChoices& own = choices_[static_cast<std::size_t>(src_rank)];
  Traffic traffic;
  const auto share_gpu = [num_gpus](int a, int b) {
    return num_gpus == 0 || gpu_of_rank(a, num_gpus) == gpu_of_rank(b, num_gpus);
  };
  std::vector<bool> is_met(received_.size());  // ranks that the current token goes to
  for (std::int64_t token = 0; token < own.num_tokens; ++token) {
    std::fill(is_met.begin(), is_met.end(), false);
    for (int k = 0; k < topk_; ++k) {
      const std::int64_t at = row(src_rank, token, k);
      if (at == kNoRow || at >= capacity) continue;
      const auto index = static_cast<std::size_t>(token * topk_ + k);
      const int owner = config_.map.rank_of(static_cast<int>(own.topk_idx[index]));
      const bool is_new = !is_met[static_cast<std::size_t>(owner)];
      is_met[static_cast<std::size_t>(owner)] = true;
      if (is_new || config_.layout == Layout::kExpertMajor) ++traffic.rows;
      if (is_new && owner != src_rank) ++traffic.crossing;
      if (is_new && !share_gpu(owner, src_rank)) ++traffic.wire;
    }
  }
  return traffic;
}

}  // namespace ep::bench
