// SPDX-License-Identifier: Apache-2.0
// One output row of the layer in fp64, with the largest error that the documented roundings allow.
#pragma once

#include "bench/moe_layer.h"
#include "bench/number.h"

#include <ep/moe.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace ep::bench {

/// An expert's contribution to a token.
struct Term {
  int rank = 0;  ///< of the expert
  int expert = 0;
  float weight = 0;
};

struct Mismatch {
  std::int64_t elem = 0;
  double expected = 0;
  double tolerance = 0;
  double actual = 0;
};

/// The roundings: in kFlat the owner adds its terms in fp32 and rounds the sum to the returned type
/// (the hop); in kExpertMajor each a x + b is rounded to the type, weighted, added per rank in fp32
/// and rounded again (the hop). The hops of another node are added in fp32 and rounded (the hop
/// between nodes). These and the hops of the own node are added in fp32 and rounded once. The
/// tolerance of
/// an element is half a unit in the last place for each rounding that its value passes, at the
/// magnitude that it has there, plus the fp32 errors; in an exact layer it is 0.
class Reference {
 public:
  struct Config {
    Layout layout = Layout::kFlat;
    bool exact = false;
    DType dtype = DType::kBf16;  ///< of the dispatched rows
    std::int64_t hidden = 0;
    int rank = 0;  ///< whose tokens these are
    int lsa_size = std::numeric_limits<int>::max();
  };

  Reference(const Config& config, std::span<const ExpertFunction> experts);

  /// Computes the output row of a token. `terms` ascend by rank, within a rank in k order.
  void compute(const RowView& input, std::span<const Term> terms);

  /// The first element of `row` that is not what the last compute() allows.
  std::optional<Mismatch> compare(std::span<const std::byte> row);

 private:
  /// Exact values and bounds of the errors of the computed ones.
  struct Sum {
    std::vector<double> value;
    std::vector<double> error;
  };

  void widen_input(const RowView& input);
  void clear(Sum& sum) const;
  void add_term(const Term& term);
  void round_sum(Sum& sum) const;
  int node_of(int rank) const { return rank / config_.lsa_size; }
  void end_far_node(int num_hops);
  static void add_to(Sum& sum, const Sum& addend);

  Config config_;
  std::span<const ExpertFunction> experts_;
  DType out_dtype_;
  std::vector<float> narrow_;  // elements as fp32, before scaling
  std::vector<double> input_;
  Sum hop_;    // of the current rank
  Sum node_;   // of the current node, if it is another one
  Sum total_;  // of the output
};

}  // namespace ep::bench
