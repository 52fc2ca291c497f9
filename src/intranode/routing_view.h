// SPDX-License-Identifier: Apache-2.0
// Reads a dispatch's tables: which token goes to which rank and row (layout/routing_tables.h).
#pragma once

#include "intranode/dispatch_params.h"

#include <cstdint>

namespace ep::intranode {

template <primitives::Executor Exec>
struct RoutingView {
  const RoutingParams* params;

  EP_HOST_DEVICE explicit RoutingView(const RoutingParams& routing) : params(&routing) {}

  EP_HOST_DEVICE const layout::TableShape& shape() const { return params->tables.shape; }
  EP_HOST_DEVICE int topk() const { return shape().topk; }
  /// Owner of the expert; -1 stays -1.
  EP_HOST_DEVICE std::int32_t rank_of(std::int32_t expert) const {
    return expert < 0 ? -1 : params->rank_of[expert];
  }

  template <class T>
  EP_HOST_DEVICE T* array(std::int64_t offset) const {
    return layout::array_at<T>(params->block, offset);
  }
  EP_HOST_DEVICE std::int64_t* first_rows() const {
    return array<std::int64_t>(params->tables.first_rows);
  }
  EP_HOST_DEVICE std::int64_t* capacities() const {
    return array<std::int64_t>(params->tables.capacities);
  }
  EP_HOST_DEVICE std::int64_t* pairs_from() const {
    return array<std::int64_t>(params->tables.pairs_from);
  }
  EP_HOST_DEVICE std::int64_t* pair_bases() const {
    return array<std::int64_t>(params->tables.pair_bases);
  }
  EP_HOST_DEVICE std::int64_t* source_tokens() const {
    return array<std::int64_t>(params->tables.source_tokens);
  }
  EP_HOST_DEVICE std::int32_t* counts() const { return array<std::int32_t>(params->tables.counts); }
  EP_HOST_DEVICE std::int64_t* sizes() const { return array<std::int64_t>(params->tables.sizes); }
  /// A handle whose dispatch was refused after its call had returned.
  EP_HOST_DEVICE bool is_refused() const {
    return Exec::Memory::load(sizes() + static_cast<int>(layout::Size::kIsRefused)) != 0;
  }

  /// Global expert ids of a token, -1 = none.
  EP_HOST_DEVICE std::int32_t* experts_of(std::int64_t token) const {
    return array<std::int32_t>(params->tables.experts) + token * topk();
  }
  EP_HOST_DEVICE int expert_column(int expert) const { return shape().num_ranks + expert; }
  EP_HOST_DEVICE std::int64_t mask_index(int column, std::int64_t group) const {
    return column * shape().num_groups() + group;
  }

  EP_HOST_DEVICE std::uint32_t mask_of(int column, std::int64_t group) const {
    return array<std::uint32_t>(params->tables.masks)[mask_index(column, group)];
  }
  EP_HOST_DEVICE bool goes_to(int column, std::int64_t token) const {
    const std::uint32_t bit = 1U << (token % layout::kGroupTokens);
    return (mask_of(column, token / layout::kGroupTokens) & bit) != 0;
  }

  /// Where a token lies among those of the column.
  struct Place {
    bool goes_there;
    std::int32_t index;  ///< of the next token that goes there, if this one does not
  };
  EP_HOST_DEVICE Place place_of(int column, std::int64_t token) const {
    const std::int64_t at = mask_index(column, token / layout::kGroupTokens);
    const std::uint32_t mask = array<std::uint32_t>(params->tables.masks)[at];
    const std::int32_t before = array<std::int32_t>(params->tables.prefixes)[at];
    const std::uint32_t bit = 1U << (token % layout::kGroupTokens);
    return {(mask & bit) != 0, before + Exec::popcount(mask & (bit - 1))};
  }

  /// Final row of the token in the column, if it goes there; else the row of the next token that
  /// does.
  EP_HOST_DEVICE std::int64_t row_in(int column, std::int64_t token) const {
    return first_rows()[column] + place_of(column, token).index;
  }

  /// The token's pair at `rank`, among those of this rank; -1 if it has none. The loads do not wait
  /// for each other.
  EP_HOST_DEVICE std::int32_t pair_at(int rank, std::int64_t token) const {
    const std::int64_t index = mask_index(rank, token / layout::kGroupTokens);
    const std::uint32_t mask = array<std::uint32_t>(params->tables.masks)[index];
    const std::int32_t prefix = array<std::int32_t>(params->tables.prefixes)[index];
    const std::uint32_t bit = 1U << (token % layout::kGroupTokens);
    return (mask & bit) == 0 ? -1 : prefix + Exec::popcount(mask & (bit - 1));
  }

  /// Final row of a token's expert at its rank, -1 if the row was dropped.
  EP_HOST_DEVICE std::int64_t expert_row(int expert, std::int64_t token) const {
    const std::int64_t row = row_in(expert_column(expert), token);
    return row < capacities()[params->rank_of[expert]] ? row : -1;
  }

  /// Row of a (token, rank) pair in a flat output, -1 if it was dropped.
  EP_HOST_DEVICE std::int64_t flat_row(int rank, std::int64_t token) const {
    const std::int64_t row = row_in(rank, token);
    return row < capacities()[rank] ? row : -1;
  }

  /// True if no earlier k names the same expert.
  EP_HOST_DEVICE static bool is_first_of_expert(const std::int32_t* experts, int k) {
    EP_NO_UNROLL
    for (int earlier = 0; earlier < k; ++earlier) {
      if (experts[earlier] == experts[k]) return false;
    }
    return true;
  }
};

/// Weight of k together with those of later k that name the same expert, in k order.
/// Precondition: k is the first of its expert.
template <class IsSame, class WeightAt>
EP_HOST_DEVICE float sum_of_repeats(int topk, int k, IsSame is_same, WeightAt weight_at) {
  float sum = weight_at(k);
  EP_NO_UNROLL
  for (int later = k + 1; later < topk; ++later) {
    if (is_same(later)) sum = sum + weight_at(later);
  }
  return sum;
}

/// As sum_of_repeats, of a token's experts and weights in memory.
EP_HOST_DEVICE inline float summed_weight(
    const std::int32_t* experts, int topk, int k, const StridedInput& weights, std::int64_t token) {
  const float* row = static_cast<const float*>(weights.data) + token * weights.row_stride;
  return sum_of_repeats(
      topk, k, [&](int later) { return experts[later] == experts[k]; },
      [&](int at) { return row[at * weights.col_stride]; });
}

}  // namespace ep::intranode
