// SPDX-License-Identifier: Apache-2.0
// Computes every rank's choices, keeps this rank's.
#include "bench/step_table.h"

#include <utility>

namespace ep::bench {

StepTable::StepTable(const Job& job, const Config& config)
    : options_(job.options), map_(config.map), routing_(job.make_routing()) {
  const int num_gpus = job.gpus ? job.gpus->num_gpus() : 0;
  const int num_steps = routing_->num_recorded_steps().value_or(config.num_steps);
  for (int step = 0; step < num_steps; ++step) {
    with_places(step, [&](const RowPlaces& places) {
      own_.push_back({.choices = places.choices()[static_cast<std::size_t>(config.rank)],
                      .traffic = places.traffic_of(config.rank, config.capacity, num_gpus)});
    });
  }
}

void StepTable::with_places(int step, const std::function<void(const RowPlaces&)>& use) const {
  std::vector<RankChoices> choices;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    choices.push_back(choices_of(*routing_, step, rank));
  }
  use(RowPlaces({.layout = options_.layout, .align = options_.align, .map = map_}, choices,
                options_.topk));
}

ConstTensorView StepTable::topk_idx(int step) const {
  const RankChoices& choices = of(step).choices;
  return {choices.topk_idx.data(), DType::kInt64, {choices.num_tokens, options_.topk}};
}

ConstTensorView StepTable::topk_weights(int step) const {
  const RankChoices& choices = of(step).choices;
  return {choices.topk_weights.data(), DType::kFp32, {choices.num_tokens, options_.topk}};
}

}  // namespace ep::bench
