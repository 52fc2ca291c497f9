// SPDX-License-Identifier: Apache-2.0
// Memory of a lane that pulls.
#pragma once

#include "intranode/routing_view.h"
#include "primitives/executor.h"

#include <cstddef>
#include <cstdint>

namespace ep::intranode {

/// Scratch of a lane that pulls: small, for there are many of them.
struct PullScratch {
  /// Where a rank's rows are: the same for all tokens.
  struct Owner {
    const std::byte* rows;
    std::uint32_t stride_units;
    std::uint32_t uses_ring;
    std::int64_t first_row;  ///< of this rank's pairs, kFlat
    std::int64_t capacity;
  };
  /// What k of a token refers to, kExpertMajor. row -1: none of its own, or dropped.
  struct Choice {
    std::int32_t expert;
    std::int32_t rank;
    std::int32_t row;
    float weight;
  };
  struct Hop {
    std::int32_t rank;
    float weight;
  };
  /// Tokens whose rows are looked up at once: those of a usual ticket.
  static constexpr int kBatchTokens = 2;

  Owner* owners;              // [num_ranks]
  std::int64_t* tally;        // [num_ranks]
  const std::byte** rows;     // [kBatchTokens][terms_of]; null: none
  Choice* choices;            // [kBatchTokens][topk], kExpertMajor
  Hop* hops;                  // [kBatchTokens][topk], kExpertMajor: of the same term of `rows`
  std::int32_t* pairs;        // [kBatchTokens][num_ranks], of owners that use the ring; -1: none
  std::int32_t* front_pairs;  // [num_ranks], of the token whose sum is under way

  EP_HOST_DEVICE PullScratch(const primitives::Lane& lane, const layout::TableShape& shape) {
    const int num_choices = shape.has_expert_rows ? kBatchTokens * shape.topk : 0;
    owners = layout::array_at<Owner>(lane.scratch, 0);
    tally = behind<std::int64_t>(owners, shape.num_ranks);
    rows = behind<const std::byte*>(tally, shape.num_ranks);
    choices = behind<Choice>(rows, kBatchTokens * terms_of(shape));
    hops = behind<Hop>(choices, num_choices);
    pairs = behind<std::int32_t>(hops, num_choices);
    front_pairs = pairs + std::int64_t{kBatchTokens} * shape.num_ranks;
  }

  /// Terms of a token: a rank's row each, or a row of each k.
  EP_HOST_DEVICE static int terms_of(const layout::TableShape& shape) {
    return shape.has_expert_rows ? shape.topk : shape.num_ranks;
  }
  EP_HOST_DEVICE static std::int64_t bytes(const layout::TableShape& shape) {
    const std::int64_t num_ranks = shape.num_ranks;
    const std::int64_t num_choices = shape.has_expert_rows ? kBatchTokens * shape.topk : 0;
    return num_ranks * static_cast<std::int64_t>(sizeof(Owner) + sizeof(std::int64_t)) +
           static_cast<std::int64_t>(sizeof(std::byte*)) * kBatchTokens * terms_of(shape) +
           num_choices * static_cast<std::int64_t>(sizeof(Choice) + sizeof(Hop)) +
           (kBatchTokens + 1) * num_ranks * static_cast<std::int64_t>(sizeof(std::int32_t));
  }

 private:
  template <class T, class Before>
  EP_HOST_DEVICE static T* behind(Before* first, int count) {
    return static_cast<T*>(static_cast<void*>(first + count));
  }
};

}  // namespace ep::intranode
