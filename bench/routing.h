// SPDX-License-Identifier: Apache-2.0
// Which experts the tokens of every step and rank go to, and what their rows are made of.
#pragma once

#include "bench/row_source.h"
#include "bench/text.h"
#include "bench/trace.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace ep::bench {

/// The choice of one token; both spans have top-k entries.
struct Choice {
  std::span<std::int64_t> experts;  ///< -1: no expert
  std::span<float> weights;
};

struct RoutingConfig {
  int num_ranks = 1;
  std::int64_t num_tokens = 0;  ///< per rank, where no trace says otherwise
  int topk = 1;
  int num_experts = 1;
  std::uint64_t seed = 1;
  /// Weights are small powers of two, also where a trace has others.
  bool exact = false;
};

/// Every rank computes the same for every rank. One thread at a time: choices are remembered.
class Routing {
 public:
  explicit Routing(const RoutingConfig& config) : config_(config) {}
  Routing(const Routing&) = delete;
  Routing& operator=(const Routing&) = delete;
  virtual ~Routing() = default;

  const RoutingConfig& config() const { return config_; }
  /// Steps that were recorded; empty if there are as many as one asks for.
  virtual std::optional<int> num_recorded_steps() const { return std::nullopt; }
  virtual std::int64_t num_tokens(int /*step*/, int /*rank*/) const { return config_.num_tokens; }
  virtual RowKey row_key(int step, int rank, std::int64_t token) const;
  virtual void choose(int step, int rank, std::int64_t token, const Choice& choice) = 0;

 protected:
  /// Different for every token of every step and rank.
  std::uint64_t token_key(int step, int rank, std::int64_t token) const;
  /// Weights for `exact`: 1 or 2.
  static void choose_exact_weights(std::uint64_t key, std::span<float> weights);

 private:
  RoutingConfig config_;
};

/// top-k different experts, uniform, for every token.
std::unique_ptr<Routing> make_random_routing(const RoutingConfig& config);
/// top-k different experts, drawn one after the other: the i-th most popular of those that are left
/// has weight i^-exponent; which ones are popular is random. Precondition: exponent >= 0.
std::unique_ptr<Routing> make_zipf_routing(const RoutingConfig& config, double exponent);
/// Softmax over the top-k of a fixed random projection of the word's row.
std::unique_ptr<Routing> make_text_routing(const RoutingConfig& config,
                                           const RowFormat& format,
                                           std::shared_ptr<const Text> text);
std::unique_ptr<Routing> make_trace_routing(const RoutingConfig& config,
                                            std::shared_ptr<const Trace> trace);

/// The choices of one rank in one step, row-major [T, K].
struct RankChoices {
  std::int64_t num_tokens = 0;
  std::vector<std::int64_t> topk_idx;
  std::vector<float> topk_weights;
};

RankChoices choices_of(Routing& routing, int step, int rank);

/// A distinct expert of a token, and the sum of its weights in k order.
struct WeightedExpert {
  int expert = 0;
  int first_k = 0;
  float weight = 0;
};

/// In the order of first_k. `out` is overwritten.
void distinct_experts(std::span<const std::int64_t> topk_idx,
                      std::span<const float> topk_weights,
                      std::vector<WeightedExpert>& out);

/// The routing as a file that --trace can replay.
Trace record_trace(Routing& routing, int num_steps);

}  // namespace ep::bench
