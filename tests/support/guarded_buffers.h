// SPDX-License-Identifier: Apache-2.0
// Outputs that a caller gives to dispatch: poisoned, with canaries before and behind in the same
// blocks.
#pragma once

#include "tests/support/group.h"
#include "tests/support/problem.h"

#include <ep/moe.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ep::test {

class GuardedBuffers {
 public:
  static Result<GuardedBuffers> create(Group& group, const Problem& problem, std::int64_t capacity);

  DispatchBuffers tensors() const;
  /// Empty unless a byte outside the first `num_rows` rows of an output was written.
  std::string broken_guard(std::int64_t num_rows) const;

 private:
  struct Output {
    const char* name;
    Tensor block;  ///< guard, rows, guard
    Tensor rows;
    std::int64_t row_bytes;
  };

  GuardedBuffers() = default;
  Status add(Group& group, const char* name, const TensorView& rows);
  Tensor find(const char* name) const;

  std::vector<Output> outputs_;
};

}  // namespace ep::test
