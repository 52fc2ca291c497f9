// SPDX-License-Identifier: Apache-2.0
// The router of the moe subcommand: expert load is as skewed as language is.
#include "bench/hash.h"
#include "bench/routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace ep::bench {
namespace {

/// More elements of the row change nothing but the time.
constexpr std::int64_t kMaxRouterDims = 256;
/// Spread of the logits of a row of unit length: how sure the router is.
constexpr double kLogitSpread = 2.0;

/// A random matrix of +1 and -1, one column per expert.
class Projection {
 public:
  Projection(std::int64_t num_dims, int num_experts, std::uint64_t seed)
      : num_experts_(static_cast<std::size_t>(num_experts)),
        signs_(static_cast<std::size_t>(num_dims) * num_experts_) {
    for (std::size_t i = 0; i < signs_.size(); ++i) {
      signs_[i] = (chain(seed, i) & 1) == 0 ? 1.0F : -1.0F;
    }
  }

  std::vector<float> apply(std::span<const float> values) const {
    std::vector<float> logits(num_experts_, 0.0F);
    for (std::size_t dim = 0; dim < values.size(); ++dim) {
      const float* signs = &signs_[dim * num_experts_];
      for (std::size_t e = 0; e < num_experts_; ++e) logits[e] += values[dim] * signs[e];
    }
    return logits;
  }

 private:
  std::size_t num_experts_;
  std::vector<float> signs_;
};

class TextRouting : public Routing {
 public:
  TextRouting(const RoutingConfig& config,
              const RowFormat& format,
              std::shared_ptr<const Text> text)
      : Routing(config),
        text_(std::move(text)),
        rows_(format),
        num_dims_(std::min(kMaxRouterDims, std::max<std::int64_t>(format.hidden - kNameElems, 0))),
        projection_(num_dims_, config.num_experts, config.seed),
        known_(static_cast<std::size_t>(text_->num_distinct())) {}

  RowKey row_key(int step, int rank, std::int64_t token) const override {
    return {.content = content_of(word_of(step, rank, token)),
            .name = token_key(step, rank, token)};
  }

  void choose(int step, int rank, std::int64_t token, const Choice& choice) override {
    const int word = word_of(step, rank, token);
    WordChoice& known = known_[static_cast<std::size_t>(word)];
    if (known.experts.empty()) known = route(word);
    std::copy(known.experts.begin(), known.experts.end(), choice.experts.begin());
    std::copy(known.weights.begin(), known.weights.end(), choice.weights.begin());
  }

 private:
  struct WordChoice {
    std::vector<std::int64_t> experts;
    std::vector<float> weights;
  };

  /// Ranks take consecutive parts of the text, step after step.
  int word_of(int step, int rank, std::int64_t token) const {
    const std::int64_t part = std::int64_t{step} * config().num_ranks + rank;
    return text_->word_at(part * config().num_tokens + token);
  }

  std::uint64_t content_of(int word) const { return chain(config().seed, text_->hash_of(word)); }

  /// Evenly spaced elements of the word's row, scaled to unit length.
  std::vector<float> embed(int word) {
    const RowFormat& format = rows_.format();
    std::vector<std::byte> bytes(format.row_bytes());
    std::vector<float> scales(format.num_scales());
    std::vector<float> row(static_cast<std::size_t>(format.hidden));
    rows_.fill({.content = content_of(word), .name = 0}, bytes, scales);
    widen_row({.dtype = format.dtype, .bytes = bytes, .scales = scales}, row);
    std::vector<float> sampled(static_cast<std::size_t>(num_dims_));
    const std::int64_t stride = num_dims_ > 0 ? (format.hidden - kNameElems) / num_dims_ : 1;
    double square = 0;
    for (std::size_t i = 0; i < sampled.size(); ++i) {
      sampled[i] =
          row[static_cast<std::size_t>(kNameElems + static_cast<std::int64_t>(i) * stride)];
      square += static_cast<double>(sampled[i]) * static_cast<double>(sampled[i]);
    }
    const auto factor = static_cast<float>(square > 0 ? kLogitSpread / std::sqrt(square) : 0);
    for (float& value : sampled) value *= factor;
    return sampled;
  }

  WordChoice route(int word) {
    const std::vector<float> logits = projection_.apply(embed(word));
    std::vector<std::int64_t> experts(logits.size());
    std::iota(experts.begin(), experts.end(), 0);
    const auto end = experts.begin() + config().topk;
    const auto logit_of = [&](std::int64_t e) { return logits[static_cast<std::size_t>(e)]; };
    std::partial_sort(experts.begin(), end, experts.end(), [&](std::int64_t a, std::int64_t b) {
      return logit_of(a) != logit_of(b) ? logit_of(a) > logit_of(b) : a < b;
    });
    experts.resize(static_cast<std::size_t>(config().topk));
    WordChoice choice = {.experts = experts, .weights = {}};
    double sum = 0;
    for (std::int64_t e : experts)
      sum += std::exp(static_cast<double>(logit_of(e) - logit_of(experts[0])));
    for (std::int64_t e : experts) {
      const double numerator = std::exp(static_cast<double>(logit_of(e) - logit_of(experts[0])));
      choice.weights.push_back(static_cast<float>(numerator / sum));
    }
    if (config().exact) choose_exact_weights(content_of(word), choice.weights);
    return choice;
  }

  std::shared_ptr<const Text> text_;
  RowSource rows_;
  std::int64_t num_dims_;
  Projection projection_;
  std::vector<WordChoice> known_;  // by word
};

}  // namespace

std::unique_ptr<Routing> make_text_routing(const RoutingConfig& config,
                                           const RowFormat& format,
                                           std::shared_ptr<const Text> text) {
  return std::make_unique<TextRouting>(config, format, std::move(text));
}

}  // namespace ep::bench
