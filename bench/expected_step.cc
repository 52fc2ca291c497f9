// SPDX-License-Identifier: Apache-2.0
// Walks over all tokens of all ranks once.
#include "bench/expected_step.h"

#include <algorithm>

namespace ep::bench {
namespace {

class StepExpectation {
 public:
  StepExpectation(const StepView& step,
                  std::span<const ExpertFunction> experts,
                  std::int64_t max_tokens)
      : step_(step),
        experts_(experts),
        max_tokens_(max_tokens),
        topk_(static_cast<std::size_t>(step.places.topk())),
        received_(step.places.received(step.rank)),
        num_kept_(std::min(received_.num_rows, step.capacity)) {}

  ExpectedStep run() {
    const auto num_rows = static_cast<std::size_t>(num_kept_);
    expected_.sources.assign(num_rows, ReceivedTable::kPadding);
    expected_.topk_weights.assign(num_rows * (is_flat() ? topk_ : 1), 0.0F);
    if (is_flat()) expected_.topk_idx.assign(num_rows * topk_, -1);
    const int num_ranks = static_cast<int>(step_.places.choices().size());
    for (int src = 0; src < num_ranks; ++src) add_source(src);
    expected_.sizes = {num_kept_, received_.num_rows, received_.num_rows > step_.capacity ? 1 : 0};
    expected_.expert_counts = received_.expert_counts;
    expected_.expert_offsets = received_.expert_offsets;
    add_terms();
    return std::move(expected_);
  }

 private:
  bool is_flat() const { return step_.places.config().layout == Layout::kFlat; }

  void add_source(int src) {
    const RankChoices& sent = step_.places.choices()[static_cast<std::size_t>(src)];
    const ExpertMap& map = step_.places.config().map;
    for (std::int64_t token = 0; token < sent.num_tokens; ++token) {
      const std::size_t first = static_cast<std::size_t>(token) * topk_;
      distinct_experts(std::span(sent.topk_idx).subspan(first, topk_),
                       std::span(sent.topk_weights).subspan(first, topk_), choices_);
      for (const WeightedExpert& choice : choices_) {
        if (map.rank_of(choice.expert) != step_.rank) continue;
        const std::int64_t row = step_.places.row(src, token, choice.first_k);
        if (row < num_kept_) add_row(static_cast<std::size_t>(row), src, token, choice);
      }
    }
  }

  void add_row(std::size_t row, int src, std::int64_t token, const WeightedExpert& choice) {
    expected_.sources[row] = static_cast<std::int32_t>(src * max_tokens_ + token);
    const std::size_t cell =
        is_flat() ? row * topk_ + static_cast<std::size_t>(choice.first_k) : row;
    expected_.topk_weights[cell] = choice.weight;
    if (is_flat()) expected_.topk_idx[cell] = step_.places.config().map.local_of(choice.expert);
  }

  void add_terms() {
    const std::int64_t num_tokens =
        step_.places.choices()[static_cast<std::size_t>(step_.rank)].num_tokens;
    expected_.terms.resize(static_cast<std::size_t>(num_tokens) * topk_);
    std::vector<Term> terms;
    for (std::int64_t token = 0; token < num_tokens; ++token) {
      collect_terms(step_, token, choices_, terms);
      std::transform(terms.begin(), terms.end(),
                     expected_.terms.begin() + token * static_cast<std::int64_t>(topk_),
                     [this](const Term& term) { return entry_of(term); });
      expected_.num_terms.push_back(static_cast<std::int32_t>(terms.size()));
    }
  }

  TermEntry entry_of(const Term& term) const {
    const ExpertFunction& function = experts_[static_cast<std::size_t>(term.expert)];
    return {.function = {.scale = static_cast<double>(function.scale),
                         .shift = static_cast<double>(function.shift),
                         .weight = static_cast<double>(term.weight)},
            .rank = term.rank};
  }

  const StepView& step_;
  std::span<const ExpertFunction> experts_;
  std::int64_t max_tokens_;
  std::size_t topk_;
  const Received& received_;
  std::int64_t num_kept_;
  std::vector<WeightedExpert> choices_;
  ExpectedStep expected_;
};

}  // namespace

ExpectedStep expect_step(const StepView& step,
                         std::span<const ExpertFunction> experts,
                         std::int64_t max_tokens) {
  return StepExpectation(step, experts, max_tokens).run();
}

}  // namespace ep::bench
