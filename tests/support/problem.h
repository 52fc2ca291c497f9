// SPDX-License-Identifier: Apache-2.0
// What all ranks of one call put in: routing, row format, layout, capacities.
#pragma once

#include <ep/config.h>
#include <ep/dtype.h>
#include <ep/expert_map.h>
#include <ep/moe.h>

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace ep::test {

using Random = std::mt19937_64;

/// Uniform in [low, high].
std::int64_t uniform(Random& random, std::int64_t low, std::int64_t high);
/// True in `percent` of 100 calls.
bool chance(Random& random, int percent);

/// The router's decision for the tokens of one rank, row-major [T, K].
struct RankTokens {
  std::int64_t num_tokens = 0;
  std::vector<std::int64_t> topk_idx{};
  std::vector<float> topk_weights{};
};

struct Routing {
  int topk = 1;
  std::vector<int> expert_to_rank{};
  std::vector<RankTokens> ranks{};

  int num_ranks() const { return static_cast<int>(ranks.size()); }
  int num_experts() const { return static_cast<int>(expert_to_rank.size()); }
  std::int64_t idx(int rank, std::int64_t token, int k) const;
  float weight(int rank, std::int64_t token, int k) const;
};

/// One dispatch, as all ranks call it.
/// Ranks per node: EP_TEST_LSA_SIZE; a large number without it.
int test_lsa_size();

struct Problem {
  Routing routing{};
  Layout layout = Layout::kFlat;
  int alignment = 1;
  std::vector<std::optional<std::int64_t>> capacity{};  ///< per rank; empty: exact sizes everywhere
  DType dtype = DType::kBf16;
  std::int64_t hidden = 64;
  DType scale_dtype = DType::kFp32;
  std::int64_t num_scales = 0;  ///< 0: no scales
  DType idx_dtype = DType::kInt64;
  bool has_weights = true;
  std::uint32_t call = 1;  ///< in every payload block
  int lsa_size = test_lsa_size();

  std::int64_t row_bytes() const { return hidden * size_of(dtype); }
  std::int64_t scales_bytes() const { return num_scales * size_of(scale_dtype); }
  std::optional<std::int64_t> capacity_of(int rank) const;
  bool are_on_one_node(int a, int b) const { return a / lsa_size == b / lsa_size; }
  /// "R=3 K=2 E=8 flat ... T=3,0,17": for messages.
  std::string describe() const;
};

/// Maxima that let `problem` through exactly; 0-token problems get max_tokens 1.
GroupConfig config_for(const Problem& problem);
/// Maxima that let all of them through.
GroupConfig config_for(const std::vector<Problem>& problems);

/// Precondition: the problem's map is valid.
ExpertMap map_of(const Problem& problem);

}  // namespace ep::test
