// SPDX-License-Identifier: Apache-2.0
// Which rank owns which expert.
#pragma once

#include <ep/api.h>
#include <ep/status.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace ep {

/// Immutable and cheap to copy. The local id of an expert is its position among the experts of its
/// rank in ascending global id. Must be equal on all ranks of a call; a different map is an error
/// on all ranks.
class EP_API ExpertMap {
 public:
  /// An empty map: "not given".
  ExpertMap() = default;

  /// expert_to_rank[e] owns expert e. Errors: kInvalidArgument for an empty map or a rank outside
  /// [0, num_ranks), with the expert and the value.
  static Result<ExpertMap> create(std::span<const int> expert_to_rank, int num_ranks);

  /// Contiguous blocks; when experts do not divide by ranks the first `num_experts % num_ranks`
  /// ranks own one more. Errors: kInvalidArgument unless num_experts >= 1 and num_ranks >= 1.
  static Result<ExpertMap> balanced(int num_experts, int num_ranks);

  bool is_empty() const { return state_ == nullptr; }
  int num_experts() const;
  int num_ranks() const;
  /// Preconditions of the rest: not empty, 0 <= expert < num_experts(), 0 <= rank < num_ranks().
  int rank_of(int expert) const;
  int local_of(int expert) const;
  int num_local(int rank) const;
  /// Global ids of a rank's experts, ascending.
  std::span<const int> experts_of(int rank) const;
  std::span<const int> expert_to_rank() const;
  std::span<const int> expert_to_local() const;
  /// Equal maps have equal fingerprints; compared across ranks.
  std::uint32_t fingerprint() const;

 private:
  struct State;
  explicit ExpertMap(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

}  // namespace ep
