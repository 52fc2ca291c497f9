// SPDX-License-Identifier: Apache-2.0
// The routings of a run: what this rank passes to the library, and what each moves.
#pragma once

#include "bench/job.h"
#include "bench/row_places.h"

#include <ep/expert_map.h>
#include <ep/tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace ep::bench {

class StepTable {
 public:
  /// `num_steps` steps, or those of the trace. Rows from `capacity` on are dropped.
  struct Config {
    int rank = 0;
    int num_steps = 1;
    std::int64_t capacity = 0;
    ExpertMap map;
  };
  StepTable(const Job& job, const Config& config);

  int num_steps() const { return static_cast<int>(own_.size()); }
  std::int64_t num_tokens(int step) const { return of(step).choices.num_tokens; }
  const RowPlaces::Traffic& traffic(int step) const { return of(step).traffic; }
  /// [T, K] of this rank.
  ConstTensorView topk_idx(int step) const;
  ConstTensorView topk_weights(int step) const;

  Routing& routing() const { return *routing_; }
  /// Calls `use` with the places of all rows of a step; they are computed anew.
  void with_places(int step, const std::function<void(const RowPlaces&)>& use) const;

 private:
  struct OwnStep {
    RankChoices choices;
    RowPlaces::Traffic traffic;
  };

  const OwnStep& of(int step) const { return own_[static_cast<std::size_t>(step)]; }

  const Options& options_;
  ExpertMap map_;
  std::unique_ptr<Routing> routing_;
  std::vector<OwnStep> own_;  // by step
};

}  // namespace ep::bench
