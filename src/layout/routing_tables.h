// SPDX-License-Identifier: Apache-2.0
// The tables of one dispatch: which token goes to which row. They are the handle that combine and
// backward use.
//
// A *column* is a destination that rows are numbered in: columns [0, R) are ranks (one row per
// (token, rank) pair), columns [R, R + E) are experts (one row per (token, expert)). Tokens are
// taken in groups of 32; for each column and group a mask says which tokens go there, and a prefix
// how many went there before. So
//   index within the column of token t = prefix[column][t / 32] + popcount(mask[column][t / 32]
//   below bit t % 32) final row                           = first_row[column] + that index.
#pragma once

#include "layout/regions.h"

#include <cstdint>

namespace ep::layout {

inline constexpr int kGroupTokens = 32;

struct TableShape {
  int num_ranks = 1;
  int num_experts = 1;
  std::int64_t num_tokens = 0;
  int topk = 1;
  bool has_expert_rows = false;  ///< expert columns have masks (kExpertMajor), not only counts

  EP_HOST_DEVICE constexpr std::int64_t num_groups() const {
    return div_up(num_tokens, kGroupTokens);
  }
  EP_HOST_DEVICE constexpr int num_columns() const { return num_ranks + num_experts; }
  EP_HOST_DEVICE constexpr int num_mask_columns() const {
    return has_expert_rows ? num_columns() : num_ranks;
  }
};

/// Offsets in bytes in the handle's block.
struct TableLayout {
  TableShape shape;
  std::int64_t experts = 0;     // int32[T][K], global ids, -1 = none
  std::int64_t masks = 0;       // u32[mask columns][groups]
  std::int64_t prefixes = 0;    // int32[mask columns][groups]
  std::int64_t counts = 0;      // int32[R + E]: this rank's rows per column
  std::int64_t first_rows = 0;  // int64[mask columns]
  std::int64_t capacities = 0;  // int64[R]: rows that each rank keeps
  std::int64_t pairs_from = 0;  // int64[R]: (token, rank) pairs that each source sent to this rank
  std::int64_t pair_bases = 0;  // int64[R]: first pair of each source
  std::int64_t source_tokens = 0;   // int64[R]: T of each source
  std::int64_t expert_counts = 0;   // int64[local experts <= E]
  std::int64_t expert_offsets = 0;  // int64[local experts + 1]
  std::int64_t sizes = 0;           // int64[kNumSizes]
  std::int64_t total_bytes = 0;
};

/// Entries of `sizes`; the first three are DispatchOutput::sizes.
/// kIsRefused: the ranks refused the dispatch, so the tables hold nothing.
enum class Size : int { kRows, kNeededRows, kHasOverflow, kPairs, kIsRefused, kCount };
inline constexpr int kNumSizes = static_cast<int>(Size::kCount);

EP_HOST_DEVICE constexpr TableLayout make_table_layout(const TableShape& shape) {
  TableLayout layout{.shape = shape};
  Regions regions;
  layout.experts = regions.add<std::int32_t>(shape.num_tokens * shape.topk);
  layout.masks = regions.add<std::uint32_t>(shape.num_mask_columns() * shape.num_groups());
  layout.prefixes = regions.add<std::int32_t>(shape.num_mask_columns() * shape.num_groups());
  layout.counts = regions.add<std::int32_t>(shape.num_columns());
  layout.first_rows = regions.add<std::int64_t>(shape.num_mask_columns());
  layout.capacities = regions.add<std::int64_t>(shape.num_ranks);
  layout.pairs_from = regions.add<std::int64_t>(shape.num_ranks);
  layout.pair_bases = regions.add<std::int64_t>(shape.num_ranks);
  layout.source_tokens = regions.add<std::int64_t>(shape.num_ranks);
  layout.expert_counts = regions.add<std::int64_t>(shape.num_experts);
  layout.expert_offsets = regions.add<std::int64_t>(shape.num_experts + 1);
  layout.sizes = regions.add<std::int64_t>(kNumSizes);
  layout.total_bytes = regions.total_bytes();
  return layout;
}

/// What a receiver keeps of each (token, rank) pair, in the order of the pairs.
struct RecordLayout {
  std::int64_t src_tokens = 0;   // int32[pairs]
  std::int64_t record_rows = 0;  // int32[pairs][K], only with expert rows
  std::int64_t total_bytes = 0;
};

EP_HOST_DEVICE constexpr RecordLayout make_record_layout(std::int64_t num_pairs,
                                                         int topk,
                                                         bool has_expert_rows) {
  RecordLayout layout;
  Regions regions;
  layout.src_tokens = regions.add<std::int32_t>(num_pairs);
  layout.record_rows = regions.add<std::int32_t>(has_expert_rows ? num_pairs * topk : 0);
  layout.total_bytes = regions.total_bytes();
  return layout;
}

}  // namespace ep::layout
