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
template <float (*kWiden)(std::uint16_t), std::uint32_t (*kPair)(float, float)>
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
};

EP_DEVICE inline float bf16_widened(std::uint16_t bits) { return layout::bf16_to_float(bits); }

using Bf16RowCodec = NarrowCodec<bf16_widened, bf16_pair>;
using Fp16RowCodec = NarrowCodec<fp16_widened, fp16_pair>;

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
};

}  // namespace ep::primitives
