// SPDX-License-Identifier: Apache-2.0
// Draws a workload: small, so that thousands of them take seconds, and odd in every way that a call
// allows.
#include "tests/sim/scenario.h"
#include "tests/support/payload.h"
#include "tests/support/routing_cases.h"

#include <algorithm>

namespace ep::test {
namespace {

template <class T, std::size_t kCount>
T one_of(Random& random, const T (&values)[kCount]) {
  return values[static_cast<std::size_t>(uniform(random, 0, kCount - 1))];
}

Routing draw_routing(Random& random) {
  constexpr int kRanks[] = {1, 2, 2, 2, 3, 3, 4, 5};
  constexpr int kMasked[] = {0, 0, 10, 60};
  constexpr int kRepeated[] = {0, 0, 30};
  RoutingShape shape{.num_ranks = one_of(random, kRanks)};
  const std::int64_t most_tokens =
      one_of(random, {std::int64_t{6}, std::int64_t{20}, std::int64_t{45}});
  for (int rank = 0; rank < shape.num_ranks; ++rank)
    shape.num_tokens.push_back(chance(random, 10) ? 0 : uniform(random, 1, most_tokens));
  shape.topk = static_cast<int>(uniform(random, 1, 4));
  const int num_experts = static_cast<int>(uniform(random, 1, 9));
  shape.expert_to_rank = chance(random, 25) ? random_map(num_experts, shape.num_ranks, random)
                                            : balanced_map(num_experts, shape.num_ranks);
  shape.masked_percent = one_of(random, kMasked);
  shape.repeated_percent = one_of(random, kRepeated);
  Routing routing = random_routing(shape, random);
  if (chance(random, 10)) send_all_to_expert(routing, uniform(random, 0, num_experts - 1));
  return routing;
}

Problem draw_problem(Random& random, std::uint64_t seed) {
  constexpr DType kDTypes[] = {DType::kBf16, DType::kFp16, DType::kFp32};
  Problem problem{.routing = draw_routing(random)};
  problem.layout = chance(random, 50) ? Layout::kFlat : Layout::kExpertMajor;
  if (problem.layout == Layout::kExpertMajor) problem.alignment = one_of(random, {1, 1, 2, 8, 24});
  problem.dtype = one_of(random, kDTypes);
  problem.hidden = uniform(random, 1, 5) * kBlockBytes / size_of(problem.dtype);
  problem.num_scales = std::min<std::int64_t>(one_of(random, {0, 0, 1, 4, 8}), problem.hidden);
  problem.idx_dtype = chance(random, 50) ? DType::kInt64 : DType::kInt32;
  problem.has_weights = chance(random, 80);
  problem.call = static_cast<std::uint32_t>(seed % 1000 + 1);
  if (chance(random, 50)) {
    const Oracle exact(problem);
    for (int rank = 0; rank < problem.routing.num_ranks(); ++rank) {
      const std::int64_t needed = exact.rank(rank).num_needed();
      problem.capacity.emplace_back(chance(random, 60) ? needed + uniform(random, 0, 3)
                                                       : uniform(random, 0, needed));
    }
  }
  return problem;
}

DispatchSpec draw_dispatch(Random& random, const Problem& problem) {
  DispatchSpec spec;
  spec.copy_way =
      one_of(random, {CopyWay::kAuto, CopyWay::kSender, CopyWay::kReceiver, CopyWay::kReceiver});
  spec.gives_buffers = !problem.capacity.empty() && chance(random, 20);
  spec.strides.row_gap_bytes = one_of(random, {0, 0, 16, 48});
  return spec;
}

CombineSpec draw_combine(Random& random, const Problem& problem) {
  CombineSpec spec;
  spec.values.dtype = problem.dtype;
  spec.values.seed = problem.call;
  spec.hidden = problem.hidden;
  spec.weighted = problem.layout == Layout::kExpertMajor && chance(random, 50);
  spec.has_bias = chance(random, 30);
  spec.way = one_of(random, {CombineWay::kAuto, CombineWay::kPull, CombineWay::kPush});
  spec.place = one_of(
      random, {RowsPlace::kArena, RowsPlace::kArena, RowsPlace::kOutside, RowsPlace::kStrided});
  spec.out = chance(random, 80) ? OutPlace::kLibrary : OutPlace::kGuarded;
  return spec;
}

std::vector<SimStep> draw_steps(Random& random, const Problem& problem) {
  using Kind = SimStep::Kind;
  std::vector<SimStep> steps{{.kind = Kind::kDispatch, .dispatch = draw_dispatch(random, problem)}};
  const std::int64_t num_further = uniform(random, 1, 3);
  for (std::int64_t i = 0; i < num_further; ++i) {
    SimStep step{.kind = one_of(random, {Kind::kDispatch, Kind::kCached, Kind::kCombine,
                                         Kind::kCombine, Kind::kCombine, Kind::kCombineBackward,
                                         Kind::kCombineBackward, Kind::kDispatchBackward})};
    step.dispatch = draw_dispatch(random, problem);
    step.combine = draw_combine(random, problem);
    if (step.kind == Kind::kDispatchBackward) {
      step.combine.weighted = false;
      step.combine.has_bias = false;
    }
    steps.push_back(step);
  }
  return steps;
}

SimFault draw_fault(Random& random, int num_ranks) {
  using Kind = SimFault::Kind;
  return {.kind = chance(random, 30) ? Kind::kAbsent : Kind::kKilled,
          .rank = static_cast<int>(uniform(random, 0, num_ranks - 1)),
          .at_step = static_cast<std::uint64_t>(uniform(random, 1, 20'000))};
}

}  // namespace

SimScenario draw_scenario(std::uint64_t seed) {
  Random random(seed);
  SimScenario scenario{.seed = seed, .problem = draw_problem(random, seed)};
  scenario.config = config_for(scenario.problem);
  scenario.config.ring_slots = one_of(random, {1, 1, 2, 4});
  scenario.config.num_sms = static_cast<int>(uniform(random, 1, 2));
  scenario.config.timeout = std::chrono::milliseconds(2'000);
  scenario.launch.group_threads = one_of(random, {2, 2, 3, 4});
  scenario.launch.has_copy_unit = !chance(random, 25);
  scenario.launch.stage_bytes = one_of(random, {0, 0, 16, 32});
  constexpr std::uint64_t kSeedsPerFault = 20;
  if (seed % kSeedsPerFault == 0 && scenario.problem.routing.num_ranks() > 1) {
    scenario.fault = draw_fault(random, scenario.problem.routing.num_ranks());
  } else {
    scenario.steps = draw_steps(random, scenario.problem);
  }
  return scenario;
}

SimScenario large_scenario(int num_ranks, std::uint64_t seed) {
  constexpr std::int64_t kTokens = 5;
  constexpr int kTopk = 8;
  SimScenario scenario{.seed = seed};
  Problem& problem = scenario.problem;
  problem.routing = uniform_routing(num_ranks, kTokens, kTopk, 2 * num_ranks, seed);
  problem.layout = seed % 2 == 0 ? Layout::kFlat : Layout::kExpertMajor;
  problem.hidden = kBlockBytes / size_of(problem.dtype);
  scenario.config = config_for(problem);
  scenario.config.num_sms = 1;
  scenario.config.ring_slots = 1;
  scenario.config.timeout = std::chrono::milliseconds(60'000);
  CombineSpec combine;
  combine.hidden = problem.hidden;
  combine.way = CombineWay::kPush;
  scenario.steps = {
      {.kind = SimStep::Kind::kDispatch, .dispatch = {.copy_way = CopyWay::kReceiver}},
      {.kind = SimStep::Kind::kCombine, .combine = combine}};
  return scenario;
}

}  // namespace ep::test
