// SPDX-License-Identifier: Apache-2.0
// The experts of the layer: expert e returns a_e * x + b_e, element by element.
#pragma once

#include "bench/number.h"

#include <ep/expert_map.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ep::bench {

struct ExpertFunction {
  float scale = 1;  ///< a_e
  float shift = 0;  ///< b_e
};

/// Functions of all experts. `exact`: a = +1 or -1, b = -1, 0 or 1; else random, |a| in [0.5, 1.5)
/// and |b| < 0.5.
std::vector<ExpertFunction> make_experts(int num_experts, std::uint64_t seed, bool exact);

/// Largest |w (a x + b)| of an exact layer.
inline constexpr int kMaxExactTerm = 6;

/// Rows that one rank received, and where its experts' results go.
struct ExpertRows {
  DType dtype = DType::kBf16;  ///< of the received rows
  std::int64_t hidden = 0;
  std::int64_t num_scales = 0;  ///< per row
  const std::byte* rows = nullptr;
  const float* scales = nullptr;
  std::byte* out = nullptr;  ///< expert_dtype_of(dtype)
};

/// The functions of one rank's experts, by local id, applied to what a dispatch delivered. All
/// arithmetic is fp32, multiply then add, with one rounding to the returned type at the end.
class LocalExperts {
 public:
  LocalExperts(std::span<const ExpertFunction> all, const ExpertMap& map, int rank);

  /// Flat layout: row i becomes the sum over its local experts of weight * (a x + b), in k order.
  /// `topk_idx` and `topk_weights` are [N, topk]; an entry of -1 adds nothing.
  void apply_flat(const ExpertRows& io,
                  std::int64_t num_rows,
                  std::span<const std::int64_t> topk_idx,
                  std::span<const float> topk_weights);

  /// Expert-major layout: rows [first, first + count) become a x + b of one expert.
  void apply_expert(const ExpertRows& io, int local_expert, std::int64_t first, std::int64_t count);

 private:
  void widen(const ExpertRows& io, std::int64_t row);
  void narrow(const ExpertRows& io, std::int64_t row);

  std::vector<ExpertFunction> functions_;
  std::vector<float> input_;
  std::vector<float> sum_;
};

}  // namespace ep::bench
