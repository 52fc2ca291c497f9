// SPDX-License-Identifier: Apache-2.0
// Sums and scaled rows by one warp, bit for bit as row_math.h says: multiply, then add, never
// fused.
#pragma once

#include "base/macros.h"
#include "layout/numeric.h"
#include "primitives/bulk_vector.cuh"
#include "primitives/coop.cuh"
#include "primitives/row_codec.cuh"
#include "primitives/row_parts.cuh"
#include "primitives/row_reducer.h"

#include <ep/dtype.h>

#include <cstddef>
#include <cstdint>

namespace ep::primitives {

/// What the sums of a kernel may look like.
enum class SumShape {
  kAny,
  kSingleTermHops,  ///< no weights, one term per hop: half of the registers
};

/// Sums the rows of one output, part by part. All threads of the warp walk through the terms
/// together.
template <class Codec, class Terms, SumShape kShape>
class PartSum {
 public:
  EP_DEVICE PartSum(const WarpRowSum& sum, Terms& terms, const SumSpec& spec)
      : sum_(sum), terms_(terms), spec_(spec) {}

  EP_DEVICE void run() {
    for_each_part(sum_, terms_, num_vectors_of(spec_),
                  [&](std::int64_t first, std::int64_t end) { sum_vectors(first, end); });
  }

 private:
  EP_DEVICE void sum_vectors(std::int64_t first, std::int64_t end) {
    first_ = first;
    end_ = end;
    RowPart<Codec> total = {};
    if constexpr (kShape == SumShape::kSingleTermHops) {
      if (sum_.num_terms > 0) begin_term(total, 0);
#pragma unroll 1
      for (int term = 1; term < sum_.num_terms; ++term) add_row(total, term);
    } else {
      int term = 0;
      if (sum_.num_terms > 0) add_hop(total, term, true);
#pragma unroll 1
      while (term < sum_.num_terms) add_hop(total, term, false);
    }
    if (sum_.bias != nullptr) add_bias(total);
    total.store(sum_.out, first_, end_);
  }

  /// Adds the rounded sum of a hop, or begins with it. `term` is left behind the hop.
  EP_DEVICE void add_hop(RowPart<Codec>& total, int& term, bool is_first_hop) {
    const int hop_end = sum_.end_of_hop(term);
    if (!spec_.weighted && !is_first_hop && hop_end - term == 1) return add_row(total, term++);
    RowPart<Codec> partial;
    const bool is_rounding =
        spec_.weighted || hop_end - term > 1;  // a single unweighted term is of the dtype already
    begin_term(partial, term);
    // Not unrolled: it would only cost registers, the loads of one term already fill the pipe.
#pragma unroll 1
    for (++term; term < hop_end; ++term) add_term(partial, term);
    if (is_rounding) partial.round();
    if (is_first_hop) {
      total = partial;
    } else {
      total.add(partial);
    }
  }

  EP_DEVICE void begin_term(RowPart<Codec>& partial, int term) {
    if (kShape == SumShape::kAny && spec_.weighted) {
      const float weight = sum_.weight_of(term);
      merge(partial, term, [&](float& value, float x) { value = __fmul_rn(weight, x); });
    } else {
      merge(partial, term, [](float& value, float x) { value = x; });
    }
  }
  EP_DEVICE void add_term(RowPart<Codec>& partial, int term) {
    if (!spec_.weighted) return add_row(partial, term);
    const float weight = sum_.weight_of(term);
    merge(partial, term,
          [&](float& value, float x) { value = __fadd_rn(value, __fmul_rn(weight, x)); });
  }
  EP_DEVICE void add_row(RowPart<Codec>& part, int term) {
    merge(part, term, [](float& value, float x) { value = __fadd_rn(value, x); });
  }
  template <class Step>
  EP_DEVICE void merge(RowPart<Codec>& part, int term, Step step) {
    terms_.take(term, first_, end_,
                [&](int i, const Vector& vector) { part.merge(i, vector, step); });
  }
  EP_DEVICE void add_bias(RowPart<Codec>& part) {
    RawPart raw;
    raw.load(sum_.bias, first_, end_);
#pragma unroll
    for (int i = 0; i < RawPart::kInFlight; ++i)
      part.merge(i, raw.vectors[i], [](float& value, float x) { value = __fadd_rn(value, x); });
  }

  const WarpRowSum& sum_;
  Terms& terms_;
  SumSpec spec_;
  // Vectors of the part at hand: the first of this thread, and the part's end.
  std::int64_t first_ = 0;
  std::int64_t end_ = 0;
};

/// A sum that is its only term, bit for bit.
EP_DEVICE inline bool is_copy(const WarpRowSum& sum, const SumSpec& spec) {
  return sum.num_terms == 1 && !spec.weighted && sum.bias == nullptr;
}

/// Two terms, added in their own dtype. The same bits as an fp32 sum that is rounded once: the sum
/// of two bf16 or fp16 is either exact in fp32, or so near the larger term that both round to it.
template <class Codec, class Terms>
EP_DEVICE void sum_pair(const WarpRowSum& sum, Terms& terms, const SumSpec& spec) {
  for_each_part(sum, terms, num_vectors_of(spec), [&](std::int64_t first, std::int64_t end) {
    Vector augends[RawPart::kInFlight];
    terms.take(0, first, end, [&](int i, const Vector& vector) { augends[i] = vector; });
    terms.take(1, first, end, [&](int i, const Vector& vector) {
      const std::int64_t at = first + i * kWarpThreads;
      if (at < end) {
        store_streamed(sum.out + at * static_cast<std::int64_t>(sizeof(Vector)),
                       Codec::add(augends[i], vector));
      }
    });
  });
}

template <class Codec, SumShape kShape, class Terms>
EP_DEVICE void sum_typed(const WarpRowSum& sum, Terms& terms, const SumSpec& spec) {
  if (sum.num_terms == 2 && !spec.weighted && sum.bias == nullptr)
    return sum_pair<Codec>(sum, terms, spec);
  PartSum<Codec, Terms, kShape>(sum, terms, spec).run();
}

/// All threads of the warp; `out` overlaps no input.
template <SumShape kShape, class Terms>
EP_DEVICE void sum_terms(const WarpRowSum& sum, Terms& terms, const SumSpec& spec) {
  switch (spec.dtype) {
    case DType::kBf16:
      return sum_typed<Bf16RowCodec, kShape>(sum, terms, spec);
    case DType::kFp16:
      return sum_typed<Fp16RowCodec, kShape>(sum, terms, spec);
    default:
      return sum_typed<Fp32RowCodec, kShape>(sum, terms, spec);
  }
}

/// The only term, in parts as those of a sum: a kernel of sums has registers for no more.
template <class Terms>
EP_DEVICE void copy_term(const WarpRowSum& sum, Terms& terms, const SumSpec& spec) {
  for_each_part(sum, terms, num_vectors_of(spec), [&](std::int64_t first, std::int64_t end) {
    terms.take(0, first, end, [&](int i, const Vector& vector) {
      const std::int64_t at = first + i * kWarpThreads;
      if (at < end)
        store_streamed(sum.out + at * static_cast<std::int64_t>(sizeof(Vector)), vector);
    });
  });
}

/// All threads of the warp; `out` overlaps no input, or is the row of a single term.
template <SumShape kShape = SumShape::kAny>
EP_DEVICE void sum_rows(const WarpRowSum& sum, const SumSpec& spec) {
  RowLoads loads{sum, num_vectors_of(spec)};
  if (is_copy(sum, spec)) return copy_term(sum, loads, spec);
  sum_terms<kShape>(sum, loads, spec);
}

/// Sums at once. Its stores are ordinary ones: the group's sync() and a release order them.
template <SumShape kShape>
class WarpRowReducer {
 public:
  using Sum = WarpRowSum;

  /// It stages nothing.
  EP_HOST_DEVICE static constexpr std::int64_t shared_bytes() { return 0; }

  EP_DEVICE WarpRowReducer(WarpGroup /*group*/, std::byte* /*shared*/, const SumSpec& spec)
      : spec_(spec) {}

  EP_DEVICE Sum begin(WarpGroup group) const { return Sum(group); }
  EP_DEVICE void load(WarpGroup /*group*/, const Sum& /*sum*/) const {}
  EP_DEVICE void finish(WarpGroup /*group*/, const Sum& sum) const { sum_rows<kShape>(sum, spec_); }
  EP_DEVICE void drain(WarpGroup /*group*/) const {}
  EP_DEVICE void fence_acquired() const {}

 private:
  SumSpec spec_;
};

/// dst = round(weight * src); dst may be src.
EP_DEVICE inline void scale_row(
    WarpGroup group, std::byte* dst, const std::byte* src, float weight, SumSpec spec) {
  WarpRowSum sum(group);
  sum.add(src, weight);
  sum.out = dst;
  spec.weighted = true;
  sum_rows(sum, spec);
}

}  // namespace ep::primitives
