// SPDX-License-Identifier: Apache-2.0
// Random and recorded routing, and what all kinds share.
#include "bench/routing.h"

#include "bench/hash.h"

#include <algorithm>
#include <utility>

namespace ep::bench {
namespace {

class RandomRouting : public Routing {
 public:
  using Routing::Routing;

  void choose(int step, int rank, std::int64_t token, const Choice& choice) override {
    const std::uint64_t key = token_key(step, rank, token);
    for (std::size_t k = 0; k < choice.experts.size(); ++k) {
      choice.experts[k] = draw(key, k, choice.experts.first(k));
      choice.weights[k] = (1 + unit_float(chain(key, ~k))) / static_cast<float>(config().topk);
    }
    if (config().exact) choose_exact_weights(key, choice.weights);
  }

 private:
  /// The k-th step of Floyd's sampling: one draw gives one expert that is not `taken`.
  std::int64_t draw(std::uint64_t key, std::size_t k, std::span<const std::int64_t> taken) const {
    const auto bound = static_cast<std::uint64_t>(config().num_experts - config().topk) + k + 1;
    const auto drawn = static_cast<std::int64_t>(chain(key, k) % bound);
    const bool is_taken = std::find(taken.begin(), taken.end(), drawn) != taken.end();
    return is_taken ? static_cast<std::int64_t>(bound) - 1 : drawn;
  }
};

class TraceRouting : public Routing {
 public:
  TraceRouting(const RoutingConfig& config, std::shared_ptr<const Trace> trace)
      : Routing(config), trace_(std::move(trace)) {}

  std::optional<int> num_recorded_steps() const override { return trace_->num_steps(); }

  std::int64_t num_tokens(int step, int rank) const override {
    return trace_->num_tokens(step % trace_->num_steps(), rank);
  }

  void choose(int step, int rank, std::int64_t token, const Choice& choice) override {
    const TraceTokens& recorded = trace_->tokens(step % trace_->num_steps(), rank);
    const std::size_t first = static_cast<std::size_t>(token) * choice.experts.size();
    for (std::size_t k = 0; k < choice.experts.size(); ++k) {
      choice.experts[k] = recorded.experts[first + k];
      choice.weights[k] = recorded.weights[first + k];
    }
    if (config().exact) choose_exact_weights(token_key(step, rank, token), choice.weights);
  }

 private:
  std::shared_ptr<const Trace> trace_;
};

}  // namespace

std::uint64_t Routing::token_key(int step, int rank, std::int64_t token) const {
  const std::uint64_t of_step = chain(config_.seed, static_cast<std::uint64_t>(step));
  return chain(chain(of_step, static_cast<std::uint64_t>(rank)), static_cast<std::uint64_t>(token));
}

RowKey Routing::row_key(int step, int rank, std::int64_t token) const {
  const std::uint64_t key = token_key(step, rank, token);
  return {.content = key, .name = mix(key)};
}

void Routing::choose_exact_weights(std::uint64_t key, std::span<float> weights) {
  for (std::size_t k = 0; k < weights.size(); ++k) {
    weights[k] = ((mix(key) >> k) & 1) == 0 ? 1.0F : 2.0F;
  }
}

std::unique_ptr<Routing> make_random_routing(const RoutingConfig& config) {
  return std::make_unique<RandomRouting>(config);
}

std::unique_ptr<Routing> make_trace_routing(const RoutingConfig& config,
                                            std::shared_ptr<const Trace> trace) {
  return std::make_unique<TraceRouting>(config, std::move(trace));
}

RankChoices choices_of(Routing& routing, int step, int rank) {
  RankChoices choices;
  choices.num_tokens = routing.num_tokens(step, rank);
  const auto topk = static_cast<std::size_t>(routing.config().topk);
  choices.topk_idx.resize(static_cast<std::size_t>(choices.num_tokens) * topk);
  choices.topk_weights.resize(choices.topk_idx.size());
  for (std::int64_t token = 0; token < choices.num_tokens; ++token) {
    const std::size_t first = static_cast<std::size_t>(token) * topk;
    routing.choose(step, rank, token,
                   {.experts = std::span(choices.topk_idx).subspan(first, topk),
                    .weights = std::span(choices.topk_weights).subspan(first, topk)});
  }
  return choices;
}

void distinct_experts(std::span<const std::int64_t> topk_idx,
                      std::span<const float> topk_weights,
                      std::vector<WeightedExpert>& out) {
  out.clear();
  for (std::size_t k = 0; k < topk_idx.size(); ++k) {
    if (topk_idx[k] < 0) continue;
    const int expert = static_cast<int>(topk_idx[k]);
    const auto known = std::find_if(out.begin(), out.end(), [expert](const WeightedExpert& entry) {
      return entry.expert == expert;
    });
    if (known != out.end()) {
      known->weight += topk_weights[k];
    } else {
      out.push_back({.expert = expert, .first_k = static_cast<int>(k), .weight = topk_weights[k]});
    }
  }
}

Trace record_trace(Routing& routing, int num_steps) {
  const RoutingConfig& config = routing.config();
  Trace trace = {
      .num_ranks = config.num_ranks,
      .num_experts = config.num_experts,
      .topk = config.topk,
      .steps = std::vector<std::vector<TraceTokens>>(static_cast<std::size_t>(num_steps))};
  for (int step = 0; step < num_steps; ++step) {
    for (int rank = 0; rank < config.num_ranks; ++rank) {
      const RankChoices choices = choices_of(routing, step, rank);
      trace.steps[static_cast<std::size_t>(step)].push_back(
          {.experts = {choices.topk_idx.begin(), choices.topk_idx.end()},
           .weights = choices.topk_weights});
    }
  }
  return trace;
}

}  // namespace ep::bench
