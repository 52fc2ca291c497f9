// SPDX-License-Identifier: Apache-2.0
// Row elements on a GPU: 16 bytes widened to fp32 and rounded back, with the bits of
// layout/numeric.h.
#pragma once

#include "base/macros.h"
#include "layout/numeric.h"
#include "primitives/ptx.cuh"

#include <cstdint>

namespace ep::primitives {

/// Elements of 16 bits, two to a word: kWiden gives the value of the low half, kPair rounds two
/// values.
/// kAdd adds pairs in their own dtype.
template <float (*kWiden)(std::uint16_t),
          std::uint32_t (*kPair)(float, float),
          std::uint32_t (*kAdd)(std::uint32_t, std::uint32_t)>
struct NarrowCodec {
  static constexpr int kElems = 8;

  EP_DEVICE static void widen(const Vector& v, float (&values)[kElems]) {
#pragma unroll
    for (int i = 0; i < kElems; i += 2) {
      values[i] = kWiden(static_cast<std::uint16_t>(v.words[i / 2]));
      values[i + 1] = kWiden(static_cast<std::uint16_t>(v.words[i / 2] >> 16));
    }
  }
  EP_DEVICE static Vector narrow(const float (&values)[kElems]) {
    Vector v;
#pragma unroll
    for (int i = 0; i < kElems; i += 2) v.words[i / 2] = kPair(values[i], values[i + 1]);
    return v;
  }
  /// Rounds to the dtype and widens again.
  EP_DEVICE static void round(float (&values)[kElems]) { widen(narrow(values), values); }
  /// Sums of two elements, rounded once.
  EP_DEVICE static Vector add(const Vector& a, const Vector& b) {
    Vector sum;
#pragma unroll
    for (int i = 0; i < 4; ++i) sum.words[i] = kAdd(a.words[i], b.words[i]);
    return sum;
  }
};

EP_DEVICE inline float bf16_widened(std::uint16_t bits) { return layout::bf16_to_float(bits); }

using Bf16RowCodec = NarrowCodec<bf16_widened, bf16_pair, add_bf16_pairs>;
using Fp16RowCodec = NarrowCodec<fp16_widened, fp16_pair, add_fp16_pairs>;

struct Fp32RowCodec {
  static constexpr int kElems = 4;

  EP_DEVICE static void widen(const Vector& v, float (&values)[kElems]) {
#pragma unroll
    for (int i = 0; i < kElems; ++i) values[i] = layout::float_of_bits(v.words[i]);
  }
  /// A computed NaN is 0x7FFFFFFF already: that is what this GPU's arithmetic returns.
  EP_DEVICE static Vector narrow(const float (&values)[kElems]) {
    Vector v;
#pragma unroll
    for (int i = 0; i < kElems; ++i) v.words[i] = layout::bits_of_float(values[i]);
    return v;
  }
  EP_DEVICE static void round(float (&/*values*/)[kElems]) {}
  EP_DEVICE static Vector add(const Vector& a, const Vector& b) {
    Vector sum;
#pragma unroll
    for (int i = 0; i < kElems; ++i) {
      sum.words[i] = layout::bits_of_float(
          __fadd_rn(layout::float_of_bits(a.words[i]), layout::float_of_bits(b.words[i])));
    }
    return sum;
  }
};

}  // namespace ep::primitives
