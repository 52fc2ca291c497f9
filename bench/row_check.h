// SPDX-License-Identifier: Apache-2.0
// Compares every row that a rank received or put out with what it must be.
#pragma once

#include "bench/reference.h"
#include "bench/routing.h"
#include "bench/row_places.h"
#include "bench/row_source.h"

#include <ep/moe.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ep::bench {

struct RowCheck {
  std::int64_t checked = 0;
  std::int64_t wrong = 0;
  std::string first_wrong;  ///< what the first wrong row is and should be

  void add(const RowCheck& other);
  void add_wrong(const std::string& what);
};

/// The step that is checked. Rows may be those of another step than the routing.
struct StepView {
  const RowPlaces& places;
  const Routing& routing;
  int rows_step = 0;
  std::int64_t capacity = 0;  ///< rows from here on are dropped
  int rank = 0;
};

/// The terms of a token of `step.rank` that were delivered, by rank. Both vectors are overwritten.
void collect_terms(const StepView& step,
                   std::int64_t token,
                   std::vector<WeightedExpert>& scratch,
                   std::vector<Term>& terms);

/// Every received row bitwise, its source order, indices, weights, scales, counts, offsets, sizes,
/// and that padding rows are zero.
RowCheck check_received(const StepView& step, RowSource& rows, const DispatchOutput& received);

/// `out`: [T, H] of the expert's type, contiguous.
RowCheck check_output(const StepView& step,
                      RowSource& rows,
                      Reference& reference,
                      const std::byte* out);

}  // namespace ep::bench
