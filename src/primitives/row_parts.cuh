// SPDX-License-Identifier: Apache-2.0
// What a warp holds of rows while it sums them: the terms of a sum, and parts of their rows.
#pragma once

#include "base/macros.h"
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

}  // namespace ep::primitives
