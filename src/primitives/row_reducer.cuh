// SPDX-License-Identifier: Apache-2.0
// Sums, scales and products of rows by one warp, bit for bit as row_math.h says: multiply, then
// add, never fused.
#pragma once

#include "base/macros.h"
#include "layout/numeric.h"
#include "primitives/bulk_vector.cuh"
#include "primitives/coop.cuh"
#include "primitives/row_codec.cuh"
#include "primitives/row_reducer.h"

#include <ep/dtype.h>

#include <cstddef>
#include <cstdint>

namespace ep::primitives {

/// RowSum spread over a warp: thread i holds term i, so that terms need no memory. Members are
/// called by all threads.
struct WarpRowSum {
  EP_DEVICE explicit WarpRowSum(WarpGroup warp) : group(warp) {}

  EP_DEVICE void add(const std::byte* term_row, float term_weight) {
    if (group.thread_rank() == num_terms) {
      row = term_row;
      weight = term_weight;
    }
    ++num_terms;
  }
  EP_DEVICE void end_hop() {
    if (num_terms > 0) hop_ends |= 1U << (num_terms - 1);
  }

  EP_DEVICE const std::byte* row_of(int term) const {
    return reinterpret_cast<const std::byte*>(
        group.shuffle(reinterpret_cast<std::uintptr_t>(row), term));
  }
  EP_DEVICE float weight_of(int term) const { return group.shuffle(weight, term); }
  /// The term behind the hop that begins at `term`.
  EP_DEVICE int end_of_hop(int term) const {
    const std::uint32_t ends = hop_ends >> term;
    return ends == 0 ? num_terms : term + __ffs(static_cast<int>(ends));
  }

  WarpGroup group;
  const std::byte* row = nullptr;
  float weight = 1.0F;
  int num_terms = 0;
  std::uint32_t hop_ends = 0;  ///< bit t: term t is the last one of its hop
  std::byte* out = nullptr;
  const std::byte* bias = nullptr;
};
static_assert(kMaxTopk <= kWarpThreads, "one thread per term");

/// What a thread holds of a part of a row: kInFlight vectors, a warp's width apart, as they came or
/// widened.
struct RawPart {
  static constexpr int kInFlight = 4;
  static constexpr std::int64_t kVectors = kInFlight * kWarpThreads;  ///< of the whole warp

  Vector vectors[kInFlight];

  /// Vectors of this thread from `first` on; those at or behind `end` are zeros.
  EP_DEVICE void load(const std::byte* row, std::int64_t first, std::int64_t end) {
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const std::int64_t at = first + i * kWarpThreads;
      vectors[i] =
          at < end ? load_streamed(row + at * static_cast<std::int64_t>(sizeof(Vector))) : Vector{};
    }
  }
};

template <class Codec>
struct RowPart {
  static constexpr int kElems = Codec::kElems;

  float values[RawPart::kInFlight][kElems];

  /// step(value, x) for each of these values that vector i of a part stands against.
  template <class Step>
  EP_DEVICE void merge(int i, const Vector& vector, Step step) {
    float widened[kElems];
    Codec::widen(vector, widened);
#pragma unroll
    for (int j = 0; j < kElems; ++j) step(values[i][j], widened[j]);
  }
  EP_DEVICE void add(const RowPart& other) {
#pragma unroll
    for (int i = 0; i < RawPart::kInFlight; ++i) {
#pragma unroll
      for (int j = 0; j < kElems; ++j) values[i][j] = __fadd_rn(values[i][j], other.values[i][j]);
    }
  }
  EP_DEVICE void round() {
#pragma unroll
    for (int i = 0; i < RawPart::kInFlight; ++i) Codec::round(values[i]);
  }
  EP_DEVICE void store(std::byte* row, std::int64_t first, std::int64_t end) const {
#pragma unroll
    for (int i = 0; i < RawPart::kInFlight; ++i) {
      const std::int64_t at = first + i * kWarpThreads;
      if (at < end)
        store_streamed(row + at * static_cast<std::int64_t>(sizeof(Vector)),
                       Codec::narrow(values[i]));
    }
  }
};

/// Vectors of a row.
EP_DEVICE inline std::int64_t num_vectors_of(const SumSpec& spec) {
  return spec.num_elems /
         (spec.dtype == DType::kFp32 ? Fp32RowCodec::kElems : Bf16RowCodec::kElems);
}

/// Where PartSum takes the terms from: straight from their rows, which are one part.
struct RowLoads {
  const WarpRowSum& sum;
  std::int64_t num_vectors;

  EP_DEVICE std::int64_t part_vectors() const { return num_vectors; }
  EP_DEVICE void begin_part(int /*num_terms*/, std::int64_t /*first_vector*/) const {}
  /// visit(i, vector) for vectors [0, RawPart::kInFlight) of this thread, `first` and so on in
  /// steps of a warp, of the term; zeros at or behind `end`.
  template <class Visit>
  EP_DEVICE void take(int term, std::int64_t first, std::int64_t end, Visit visit) const {
    RawPart raw;
    raw.load(sum.row_of(term), first, end);
#pragma unroll
    for (int i = 0; i < RawPart::kInFlight; ++i) visit(i, raw.vectors[i]);
  }
  EP_DEVICE void end_part(int /*num_terms*/) const {}
};

/// step(first, end): vectors of a row that each thread holds at once, from its `first` on.
template <class Terms, class Step>
EP_DEVICE void for_each_part(const WarpRowSum& sum,
                             Terms& terms,
                             std::int64_t num_vectors,
                             Step step) {
  for (std::int64_t part = 0; part < num_vectors; part += terms.part_vectors()) {
    const std::int64_t left = num_vectors - part;
    const std::int64_t end = part + (left < terms.part_vectors() ? left : terms.part_vectors());
    terms.begin_part(sum.num_terms, part);
    for (std::int64_t first = part; first < end; first += RawPart::kVectors)
      step(first + sum.group.thread_rank(), end);
    terms.end_part(sum.num_terms);
  }
}

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

/// All threads of the warp; `out` overlaps no input, or is the row of a single term.
EP_DEVICE inline void sum_rows(const WarpRowSum& sum, const SumSpec& spec) {
  if (is_copy(sum, spec))
    return copy_vectors(sum.group, sum.out, sum.row_of(0), num_vectors_of(spec));
  RowLoads loads{sum, num_vectors_of(spec)};
  sum_terms<SumShape::kAny>(sum, loads, spec);
}

/// Sums at once. Its stores are ordinary ones: the group's sync() and a release order them.
class WarpRowReducer {
 public:
  using Sum = WarpRowSum;

  /// It stages nothing.
  EP_HOST_DEVICE static constexpr std::int64_t shared_bytes() { return 0; }

  EP_DEVICE WarpRowReducer(WarpGroup /*group*/, std::byte* /*shared*/, const SumSpec& spec)
      : spec_(spec) {}

  EP_DEVICE Sum begin(WarpGroup group) const { return Sum(group); }
  EP_DEVICE void push(WarpGroup /*group*/, const Sum& sum) const {
    if (sum.out != nullptr) sum_rows(sum, spec_);
  }
  EP_DEVICE void drain(WarpGroup /*group*/) const {}
  EP_DEVICE void fence_acquired() const {}

 private:
  SumSpec spec_;
};

/// Accumulators of a dot product that one thread holds: kDotLanes of the warp's (row_math.h).
inline constexpr int kDotAccumulators = kDotLanes / kWarpThreads;

/// Folds the warp's accumulators, thread i holding those from 8 i on: first across threads, then
/// within thread 0.
EP_DEVICE inline float fold_dot(WarpGroup group, float (&sums)[kDotAccumulators]) {
  for (int distance = kWarpThreads / 2; distance >= 1; distance /= 2) {
#pragma unroll
    for (int i = 0; i < kDotAccumulators; ++i)
      sums[i] = __fadd_rn(sums[i], group.shuffle_down(sums[i], distance));
  }
#pragma unroll
  for (int width = kDotAccumulators / 2; width >= 1; width /= 2) {
#pragma unroll
    for (int i = 0; i < width; ++i) sums[i] = __fadd_rn(sums[i], sums[i + width]);
  }
  return layout::canonical_float(group.shuffle(sums[0], 0));
}

template <class Codec>
EP_DEVICE float dot_typed(WarpGroup group,
                          const std::byte* a,
                          const std::byte* b,
                          std::int64_t num_elems) {
  constexpr int kVectors =
      kDotAccumulators / Codec::kElems;  // of a thread and chunk of kDotLanes elements
  const std::int64_t num_vectors = num_elems / Codec::kElems;
  float sums[kDotAccumulators] = {};
  for (std::int64_t first = group.thread_rank() * kVectors; first < num_vectors;
       first += kVectors * kWarpThreads) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const std::int64_t offset = (first + i) * static_cast<std::int64_t>(sizeof(Vector));
      if (first + i >= num_vectors)
        continue;  // what is left out would add +0 to accumulators that are never -0
      float x[Codec::kElems];
      float y[Codec::kElems];
      Codec::widen(load_streamed(a + offset), x);
      Codec::widen(load_streamed(b + offset), y);
#pragma unroll
      for (int j = 0; j < Codec::kElems; ++j) {
        float& sum = sums[i * Codec::kElems + j];
        sum = __fadd_rn(sum, __fmul_rn(x[j], y[j]));
      }
    }
  }
  group.sync();
  return fold_dot(group, sums);
}

/// <a, b>, the same value in all threads of the warp.
EP_DEVICE inline float dot_rows(WarpGroup group,
                                const std::byte* a,
                                const std::byte* b,
                                const SumSpec& spec) {
  switch (spec.dtype) {
    case DType::kBf16:
      return dot_typed<Bf16RowCodec>(group, a, b, spec.num_elems);
    case DType::kFp16:
      return dot_typed<Fp16RowCodec>(group, a, b, spec.num_elems);
    default:
      return dot_typed<Fp32RowCodec>(group, a, b, spec.num_elems);
  }
}

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
