// SPDX-License-Identifier: Apache-2.0
// What one rank must receive and put out in a step, as arrays that a device can be given.
#pragma once

#include "bench/check_tables.h"
#include "bench/moe_layer.h"
#include "bench/row_check.h"

#include <cstdint>
#include <span>
#include <vector>

namespace ep::bench {

struct ExpectedStep {
  // By received row. Rows of rank r begin at r * max_tokens among those sent.
  std::vector<std::int32_t> sources;
  std::vector<std::int64_t> topk_idx;  ///< kFlat
  std::vector<float> topk_weights;
  // The tensors beside the rows.
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> expert_counts;
  std::vector<std::int64_t> expert_offsets;  ///< kExpertMajor
  // By token: top-k terms, of which the first num_terms are used.
  std::vector<TermEntry> terms;
  std::vector<std::int32_t> num_terms;
};

/// `step.rows_step` is not used.
ExpectedStep expect_step(const StepView& step,
                         std::span<const ExpertFunction> experts,
                         std::int64_t max_tokens);

}  // namespace ep::bench
