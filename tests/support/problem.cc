// SPDX-License-Identifier: Apache-2.0
// What all ranks of one call put in: routing, row format, layout, capacities.
#include "tests/support/problem.h"

#include "base/env.h"
#include "tests/support/payload.h"

#include <algorithm>
#include <cstddef>

namespace ep::test {

int test_lsa_size() {
  constexpr int kMany = 1 << 20;
  const auto given = base::env_int(base::EnvVar::kTestLsaSize, {1, kMany});
  return given.ok() ? static_cast<int>(given->value_or(kMany)) : kMany;
}

std::int64_t uniform(Random& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

bool chance(Random& random, int percent) { return uniform(random, 1, 100) <= percent; }

std::int64_t Routing::idx(int rank, std::int64_t token, int k) const {
  return ranks[static_cast<std::size_t>(rank)].topk_idx[static_cast<std::size_t>(token * topk + k)];
}

float Routing::weight(int rank, std::int64_t token, int k) const {
  const RankTokens& tokens = ranks[static_cast<std::size_t>(rank)];
  return tokens.topk_weights[static_cast<std::size_t>(token * topk + k)];
}

std::optional<std::int64_t> Problem::capacity_of(int rank) const {
  return capacity.empty() ? std::nullopt : capacity[static_cast<std::size_t>(rank)];
}

std::string Problem::describe() const {
  std::string text =
      "R=" + std::to_string(routing.num_ranks()) + " K=" + std::to_string(routing.topk) +
      " E=" + std::to_string(routing.num_experts()) + " H=" + std::to_string(hidden) + " " +
      name_of(dtype) + " idx=" + name_of(idx_dtype) + " S=" + std::to_string(num_scales) +
      (has_weights ? " weights" : "") + " call=" + std::to_string(call);
  text += layout == Layout::kFlat ? " flat" : " expert_major align=" + std::to_string(alignment);
  for (int rank = 0; rank < routing.num_ranks(); ++rank) {
    text += rank == 0 ? " T=" : ",";
    text += std::to_string(routing.ranks[static_cast<std::size_t>(rank)].num_tokens);
    if (const auto rows = capacity_of(rank)) text += "(cap " + std::to_string(*rows) + ")";
  }
  return text;
}

GroupConfig config_for(const std::vector<Problem>& problems) {
  GroupConfig config;
  config.max_tokens = 1;
  config.max_hidden_bytes = kBlockBytes;
  config.max_topk = 1;
  config.max_experts = 1;
  for (const Problem& problem : problems) {
    for (const RankTokens& rank : problem.routing.ranks) {
      config.max_tokens = std::max(config.max_tokens, rank.num_tokens);
    }
    config.max_hidden_bytes = std::max(config.max_hidden_bytes, problem.row_bytes());
    if (problem.lsa_size < problem.routing.num_ranks()) {
      config.lsa_size = problem.lsa_size;
      // Rows between nodes carry scales of a quarter of the largest row.
      const std::int64_t with_scales = (problem.scales_bytes() * 4 + 15) / 16 * 16;
      config.max_hidden_bytes = std::max(config.max_hidden_bytes, with_scales);
    }
    config.max_topk = std::max(config.max_topk, problem.routing.topk);
    config.max_experts = std::max(config.max_experts, problem.routing.num_experts());
  }
  return config;
}

GroupConfig config_for(const Problem& problem) { return config_for(std::vector<Problem>{problem}); }

ExpertMap map_of(const Problem& problem) {
  return ExpertMap::create(problem.routing.expert_to_rank, problem.routing.num_ranks()).value();
}

}  // namespace ep::test
