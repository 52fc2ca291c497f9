// SPDX-License-Identifier: Apache-2.0
// Expert -> rank maps.
#include "base/hash.h"

#include <ep/expert_map.h>

#include <algorithm>
#include <string>

namespace ep {

struct ExpertMap::State {
  int num_ranks = 0;
  std::vector<int> expert_to_rank;
  std::vector<int> expert_to_local;
  std::vector<std::vector<int>> experts_of;
  std::uint32_t fingerprint = 0;
};

Result<ExpertMap> ExpertMap::create(std::span<const int> expert_to_rank, int num_ranks) {
  if (num_ranks < 1) {
    return Status(Errc::kInvalidArgument,
                  "expert map: num_ranks = " + std::to_string(num_ranks) + ", need >= 1");
  }
  if (expert_to_rank.empty()) return Status(Errc::kInvalidArgument, "expert map: no experts");
  auto state = std::make_shared<State>();
  state->num_ranks = num_ranks;
  state->experts_of.resize(static_cast<std::size_t>(num_ranks));
  state->fingerprint = base::fnv1a_32(static_cast<std::uint64_t>(num_ranks), base::kFnv32Basis);
  for (std::size_t expert = 0; expert < expert_to_rank.size(); ++expert) {
    const int rank = expert_to_rank[expert];
    if (rank < 0 || rank >= num_ranks) {
      return Status(Errc::kInvalidArgument, "expert map: expert " + std::to_string(expert) +
                                                " is on rank " + std::to_string(rank) +
                                                ", but num_ranks = " + std::to_string(num_ranks));
    }
    std::vector<int>& owned = state->experts_of[static_cast<std::size_t>(rank)];
    state->expert_to_rank.push_back(rank);
    state->expert_to_local.push_back(static_cast<int>(owned.size()));
    owned.push_back(static_cast<int>(expert));
    state->fingerprint = base::fnv1a_32(static_cast<std::uint64_t>(rank), state->fingerprint);
  }
  return ExpertMap(std::move(state));
}

Result<ExpertMap> ExpertMap::balanced(int num_experts, int num_ranks) {
  if (num_experts < 1 || num_ranks < 1) {
    return Status(Errc::kInvalidArgument,
                  "expert map: num_experts = " + std::to_string(num_experts) +
                      ", num_ranks = " + std::to_string(num_ranks) + ", need >= 1");
  }
  std::vector<int> expert_to_rank;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const int num_local = num_experts / num_ranks + (rank < num_experts % num_ranks ? 1 : 0);
    expert_to_rank.insert(expert_to_rank.end(), static_cast<std::size_t>(num_local), rank);
  }
  return create(expert_to_rank, num_ranks);
}

int ExpertMap::num_experts() const {
  return is_empty() ? 0 : static_cast<int>(state_->expert_to_rank.size());
}
int ExpertMap::num_ranks() const { return is_empty() ? 0 : state_->num_ranks; }
int ExpertMap::rank_of(int expert) const {
  return state_->expert_to_rank[static_cast<std::size_t>(expert)];
}
int ExpertMap::local_of(int expert) const {
  return state_->expert_to_local[static_cast<std::size_t>(expert)];
}
int ExpertMap::num_local(int rank) const { return static_cast<int>(experts_of(rank).size()); }
std::span<const int> ExpertMap::experts_of(int rank) const {
  return state_->experts_of[static_cast<std::size_t>(rank)];
}
std::span<const int> ExpertMap::expert_to_rank() const { return state_->expert_to_rank; }
std::span<const int> ExpertMap::expert_to_local() const { return state_->expert_to_local; }
std::uint32_t ExpertMap::fingerprint() const { return is_empty() ? 0 : state_->fingerprint; }

}  // namespace ep
