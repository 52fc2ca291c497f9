// SPDX-License-Identifier: Apache-2.0
// Random routings and the corner cases by name.
#include "tests/support/routing_cases.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <utility>

namespace ep::test {
namespace {

constexpr std::int64_t kNoExpert = -1;
constexpr int kSmallTopk = 3;
constexpr std::int64_t kSmallTokens = 19;

// First K of a partial shuffle: distinct experts, wrapping around where K > E.
void choose_experts(std::span<std::int64_t> choices, std::vector<int>& pool, Random& random) {
  for (std::size_t k = 0; k < choices.size(); ++k) {
    const std::size_t position = k % pool.size();
    const auto last = static_cast<std::int64_t>(pool.size()) - 1;
    const auto picked =
        static_cast<std::size_t>(uniform(random, static_cast<std::int64_t>(position), last));
    std::swap(pool[position], pool[picked]);
    choices[k] = pool[position];
  }
}

void repeat_one(std::span<std::int64_t> choices, Random& random) {
  const auto last = static_cast<std::int64_t>(choices.size()) - 1;
  const auto from = static_cast<std::size_t>(uniform(random, 0, last));
  const auto to = static_cast<std::size_t>(uniform(random, 0, last));
  choices[to] = choices[from];
}

RankTokens random_tokens(const RoutingShape& shape, std::int64_t num_tokens, Random& random) {
  RankTokens tokens{.num_tokens = num_tokens};
  const auto num_choices = static_cast<std::size_t>(num_tokens * shape.topk);
  tokens.topk_idx.resize(num_choices);
  tokens.topk_weights.resize(num_choices);
  std::vector<int> pool(shape.expert_to_rank.size());
  std::iota(pool.begin(), pool.end(), 0);
  const auto topk = static_cast<std::size_t>(shape.topk);
  for (std::size_t first = 0; first < num_choices; first += topk) {
    const std::span<std::int64_t> choices(tokens.topk_idx.data() + first, topk);
    choose_experts(choices, pool, random);
    if (chance(random, shape.repeated_percent)) repeat_one(choices, random);
  }
  std::uniform_real_distribution<float> weight(0.01F, 1.0F);
  for (std::size_t at = 0; at < num_choices; ++at) {
    if (chance(random, shape.masked_percent)) tokens.topk_idx[at] = kNoExpert;
    tokens.topk_weights[at] = weight(random);
  }
  return tokens;
}

std::vector<std::int64_t> same_tokens(int num_ranks, std::int64_t num_tokens) {
  return std::vector<std::int64_t>(static_cast<std::size_t>(num_ranks), num_tokens);
}

Routing small_routing(int num_ranks, std::uint64_t seed) {
  return uniform_routing(num_ranks, kSmallTokens, kSmallTopk, 4 * num_ranks + 1, seed);
}

Routing ragged_routing(int num_ranks, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::int64_t> num_tokens;
  for (int rank = 0; rank < num_ranks; ++rank) {
    num_tokens.push_back(kRaggedTokens[(static_cast<std::size_t>(rank) + seed) % 5]);
  }
  return random_routing({.num_ranks = num_ranks,
                         .num_tokens = num_tokens,
                         .topk = kSmallTopk,
                         .expert_to_rank = random_map(11, num_ranks, random),
                         .masked_percent = 20,
                         .repeated_percent = 20},
                        random);
}

Routing empty_rank(int num_ranks, int rank, std::uint64_t seed) {
  Random random(seed);
  auto num_tokens = same_tokens(num_ranks, kSmallTokens);
  num_tokens[static_cast<std::size_t>(rank)] = 0;
  return random_routing({.num_ranks = num_ranks,
                         .num_tokens = num_tokens,
                         .topk = kSmallTopk,
                         .expert_to_rank = balanced_map(2 * num_ranks, num_ranks)},
                        random);
}

Routing mapped_routing(int num_ranks, std::vector<int> expert_to_rank, std::uint64_t seed) {
  Random random(seed);
  return random_routing({.num_ranks = num_ranks,
                         .num_tokens = same_tokens(num_ranks, kSmallTokens),
                         .topk = kSmallTopk,
                         .expert_to_rank = std::move(expert_to_rank)},
                        random);
}

void mask_every_third_token(Routing& routing) {
  for (RankTokens& rank : routing.ranks) {
    for (std::size_t at = 0; at < rank.topk_idx.size(); ++at) {
      if ((at / static_cast<std::size_t>(routing.topk)) % 3 == 0) rank.topk_idx[at] = kNoExpert;
    }
  }
}

void repeat_choices(Routing& routing, int group) {
  for (RankTokens& rank : routing.ranks) {
    for (std::size_t at = 0; at < rank.topk_idx.size(); ++at) {
      const std::size_t k = at % static_cast<std::size_t>(routing.topk);
      rank.topk_idx[at] = rank.topk_idx[at - k % static_cast<std::size_t>(group)];
    }
  }
}

std::vector<int> interleaved_map(int num_experts, int num_ranks) {
  std::vector<int> map;
  for (int expert = 0; expert < num_experts; ++expert) map.push_back(expert % num_ranks);
  return map;
}

void append_token_cases(int num_ranks, std::vector<NamedRouting>& cases) {
  for (int rank = 0; rank < num_ranks; ++rank) {
    cases.push_back(
        {"zero tokens on rank " + std::to_string(rank), empty_rank(num_ranks, rank, 5)});
  }
  cases.push_back(
      {"zero tokens anywhere", uniform_routing(num_ranks, 0, kSmallTopk, num_ranks, 6)});
  cases.push_back({"one token each", uniform_routing(num_ranks, 1, 1, num_ranks, 7)});
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    cases.push_back({"ragged " + std::to_string(seed), ragged_routing(num_ranks, seed)});
  }
}

void append_choice_cases(int num_ranks, std::vector<NamedRouting>& cases) {
  const auto add = [&](std::string name, auto change) {
    NamedRouting entry{std::move(name), small_routing(num_ranks, cases.size())};
    change(entry.routing);
    cases.push_back(std::move(entry));
  };
  add("all tokens to one expert", [](Routing& r) { send_all_to_expert(r, r.num_experts() - 1); });
  add("all tokens to the last rank", [&](Routing& r) { send_all_to_rank(r, num_ranks - 1); });
  add("nothing to rank 0", [](Routing& r) { avoid_rank(r, 0); });
  add("whole tokens masked", mask_every_third_token);
  add("a whole rank masked", [](Routing& r) { mask_all(r, r.num_ranks() - 1); });
  add("everything masked", [](Routing& r) {
    for (int rank = 0; rank < r.num_ranks(); ++rank) mask_all(r, rank);
  });
  add("pairs of repeats", [](Routing& r) { repeat_choices(r, 2); });
  add("all choices equal", [](Routing& r) { repeat_choices(r, r.topk); });
}

void append_map_cases(int num_ranks, std::vector<NamedRouting>& cases) {
  const int num_experts = 3 * num_ranks + 2;
  cases.push_back({"experts do not divide",
                   mapped_routing(num_ranks, balanced_map(num_experts, num_ranks), 20)});
  cases.push_back({"interleaved experts",
                   mapped_routing(num_ranks, interleaved_map(num_experts, num_ranks), 21)});
  auto last_only = std::vector<int>(static_cast<std::size_t>(num_experts), num_ranks - 1);
  cases.push_back({"only the last rank owns experts", mapped_routing(num_ranks, last_only, 22)});
  cases.push_back({"fewer experts than ranks", mapped_routing(num_ranks, {num_ranks - 1}, 23)});
  cases.push_back({"32 choices", uniform_routing(num_ranks, 9, 32, 40, 24)});
}

}  // namespace

std::vector<int> balanced_map(int num_experts, int num_ranks) {
  std::vector<int> map;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const int count = num_experts / num_ranks + (rank < num_experts % num_ranks ? 1 : 0);
    map.insert(map.end(), static_cast<std::size_t>(count), rank);
  }
  return map;
}

std::vector<int> random_map(int num_experts, int num_ranks, Random& random) {
  std::vector<int> map;
  for (int expert = 0; expert < num_experts; ++expert) {
    map.push_back(static_cast<int>(uniform(random, 0, num_ranks - 1)));
  }
  return map;
}

Routing random_routing(const RoutingShape& shape, Random& random) {
  Routing routing{.topk = shape.topk, .expert_to_rank = shape.expert_to_rank};
  for (const std::int64_t num_tokens : shape.num_tokens) {
    routing.ranks.push_back(random_tokens(shape, num_tokens, random));
  }
  return routing;
}

Routing uniform_routing(
    int num_ranks, std::int64_t num_tokens, int topk, int num_experts, std::uint64_t seed) {
  Random random(seed);
  return random_routing({.num_ranks = num_ranks,
                         .num_tokens = same_tokens(num_ranks, num_tokens),
                         .topk = topk,
                         .expert_to_rank = balanced_map(num_experts, num_ranks)},
                        random);
}

void send_all_to_expert(Routing& routing, std::int64_t expert) {
  for (RankTokens& rank : routing.ranks) {
    std::fill(rank.topk_idx.begin(), rank.topk_idx.end(), expert);
  }
}

void send_all_to_rank(Routing& routing, int rank) {
  std::vector<std::int64_t> owned;
  for (int expert = 0; expert < routing.num_experts(); ++expert) {
    if (routing.expert_to_rank[static_cast<std::size_t>(expert)] == rank) owned.push_back(expert);
  }
  for (RankTokens& tokens : routing.ranks) {
    for (std::size_t at = 0; at < tokens.topk_idx.size(); ++at) {
      const std::size_t token = at / static_cast<std::size_t>(routing.topk);
      const std::size_t k = at % static_cast<std::size_t>(routing.topk);
      tokens.topk_idx[at] = k < owned.size() ? owned[(token + k) % owned.size()] : kNoExpert;
    }
  }
}

void avoid_rank(Routing& routing, int rank) {
  for (RankTokens& tokens : routing.ranks) {
    for (std::int64_t& expert : tokens.topk_idx) {
      if (expert != kNoExpert && routing.expert_to_rank[static_cast<std::size_t>(expert)] == rank) {
        expert = kNoExpert;
      }
    }
  }
}

void mask_all(Routing& routing, int rank) {
  auto& choices = routing.ranks[static_cast<std::size_t>(rank)].topk_idx;
  std::fill(choices.begin(), choices.end(), kNoExpert);
}

std::vector<NamedRouting> corner_routings(int num_ranks) {
  std::vector<NamedRouting> cases;
  append_token_cases(num_ranks, cases);
  append_choice_cases(num_ranks, cases);
  append_map_cases(num_ranks, cases);
  return cases;
}

}  // namespace ep::test
