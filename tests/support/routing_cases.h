// SPDX-License-Identifier: Apache-2.0
// Random routings and the corner cases by name.
#pragma once

#include "tests/support/problem.h"

#include <cstdint>
#include <string>
#include <vector>

namespace ep::test {

/// Shape of a random routing.
struct RoutingShape {
  int num_ranks = 2;
  std::vector<std::int64_t> num_tokens{};  ///< per rank
  int topk = 2;
  std::vector<int> expert_to_rank{};
  int masked_percent = 0;    ///< of the (token, k) choices: -1
  int repeated_percent = 0;  ///< of the tokens: one choice repeats another
};

/// Experts in contiguous blocks, the first ranks own one more when they do not divide.
std::vector<int> balanced_map(int num_experts, int num_ranks);
/// Experts dealt at random; some ranks may own none.
std::vector<int> random_map(int num_experts, int num_ranks, Random& random);

/// Distinct experts per token where there are enough, except as the shape asks; weights in (0, 1).
Routing random_routing(const RoutingShape& shape, Random& random);
/// The same with `num_tokens` on every rank and the balanced map.
Routing uniform_routing(
    int num_ranks, std::int64_t num_tokens, int topk, int num_experts, std::uint64_t seed);

/// Sends every choice of every token to `expert`.
void send_all_to_expert(Routing& routing, std::int64_t expert);
/// Sends every token to experts of `rank` only, masked where that rank has fewer than K.
void send_all_to_rank(Routing& routing, int rank);
/// No token goes to `rank`: its experts are masked.
void avoid_rank(Routing& routing, int rank);
void mask_all(Routing& routing, int rank);

struct NamedRouting {
  std::string name;
  Routing routing;
};

/// zero tokens on one rank, on all ranks; all tokens to one expert, to one rank; masked choices,
/// whole tokens, whole rank; repeats as pairs and all equal; ranks without tokens and without
/// experts; ragged T; experts that do not divide; interleaved maps; the full token capacity.
std::vector<NamedRouting> corner_routings(int num_ranks);

/// T values that are neither aligned nor equal.
inline constexpr std::int64_t kRaggedTokens[] = {0, 1, 3, 17, 127, 4095, 4097};

}  // namespace ep::test
