// SPDX-License-Identifier: Apache-2.0
// Random problems inside a RapidCheck property; each number is drawn by itself, so that failures
// shrink.
#include "tests/support/arbitrary_problem.h"

#include "tests/support/oracle.h"
#include "tests/support/payload.h"
#include "tests/support/routing_cases.h"

#include <rapidcheck.h>

#include <algorithm>
#include <vector>

namespace ep::test {
namespace {

/// In [low, high], evenly: RapidCheck would draw small numbers only in the first cases.
template <class T>
T drawn(T low, T high) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<T>(low, high + 1));
}

// Sometimes less, sometimes more than is needed, on every rank independently.
std::vector<std::optional<std::int64_t>> arbitrary_capacity(const Problem& problem) {
  const Oracle exact(problem);
  std::vector<std::optional<std::int64_t>> capacity;
  for (int rank = 0; rank < problem.routing.num_ranks(); ++rank) {
    const std::int64_t needed = exact.rank(rank).num_needed();
    capacity.emplace_back(drawn<std::int64_t>(0, needed + needed / 2 + 3));
  }
  return capacity;
}

}  // namespace

Routing arbitrary_routing(const ProblemLimits& limits) {
  RoutingShape shape{.num_ranks = drawn(1, limits.max_ranks)};
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    shape.num_tokens.push_back(drawn<std::int64_t>(0, limits.max_tokens));
  }
  shape.topk = drawn(1, limits.max_topk);
  const int num_experts = drawn(1, limits.max_experts);
  const bool has_strange_map = *rc::gen::arbitrary<bool>();
  shape.masked_percent = *rc::gen::element(0, 0, 10, 50, 100);
  shape.repeated_percent = *rc::gen::element(0, 0, 30, 100);
  Random random(*rc::gen::arbitrary<std::uint64_t>());
  shape.expert_to_rank = has_strange_map ? random_map(num_experts, shape.num_ranks, random)
                                         : balanced_map(num_experts, shape.num_ranks);
  return random_routing(shape, random);
}

Problem arbitrary_problem(const ProblemLimits& limits) {
  Problem problem{.routing = arbitrary_routing(limits)};
  problem.layout = *rc::gen::element(Layout::kFlat, Layout::kExpertMajor);
  if (problem.layout == Layout::kExpertMajor)
    problem.alignment = *rc::gen::element(1, 1, 2, 8, 24, 128);
  problem.dtype = *rc::gen::element(DType::kBf16, DType::kFp16, DType::kFp32, DType::kFp8E4M3,
                                    DType::kFp8E5M2, DType::kInt8, DType::kUInt8);
  problem.hidden = drawn<std::int64_t>(1, limits.max_blocks) * kBlockBytes / size_of(problem.dtype);
  problem.scale_dtype = *rc::gen::element(DType::kFp32, DType::kUInt8, DType::kBf16);
  problem.num_scales = *rc::gen::arbitrary<bool>()
                           ? drawn<std::int64_t>(0, std::min<std::int64_t>(problem.hidden, 9))
                           : 0;
  problem.idx_dtype = *rc::gen::element(DType::kInt32, DType::kInt64);
  problem.has_weights = *rc::gen::arbitrary<bool>();
  problem.call = drawn<std::uint32_t>(1, 1000);
  if (*rc::gen::arbitrary<bool>()) problem.capacity = arbitrary_capacity(problem);
  return problem;
}

}  // namespace ep::test
