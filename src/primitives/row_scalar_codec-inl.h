// SPDX-License-Identifier: Apache-2.0
// The codecs of row_codec-inl.h where Highway has no vectors: two elements to a Pair, converted one
// by one.

// Re-included by foreach_target.h for every target, hence no #pragma once.
#if defined(EP_PRIMITIVES_ROW_SCALAR_CODEC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EP_PRIMITIVES_ROW_SCALAR_CODEC_INL_H_
#undef EP_PRIMITIVES_ROW_SCALAR_CODEC_INL_H_
#else
#define EP_PRIMITIVES_ROW_SCALAR_CODEC_INL_H_
#endif

#include "layout/numeric.h"
#include "primitives/row_pair-inl.h"

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#if HWY_TARGET == HWY_SCALAR

HWY_BEFORE_NAMESPACE();
namespace ep::primitives {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// There are no non-temporal stores to choose.
struct CachedSink {};
using StreamSink = CachedSink;

/// `Bits` is the element in a row, kWiden and kNarrow convert it.
template <class Bits, float (*kWiden)(Bits), Bits (*kNarrow)(float)>
struct ScalarCodec {
  static constexpr std::size_t kElemBytes = sizeof(Bits);

  template <class D>
  static HWY_INLINE Pair<D> load(D d, const std::byte* row) {
    return {hn::Set(d, widen_at(row)), hn::Set(d, widen_at(row + kElemBytes))};
  }

  template <class D>
  static HWY_INLINE Pair<D> round(D d, const Pair<D>& v) {
    return {hn::Set(d, kWiden(narrow(v.first))), hn::Set(d, kWiden(narrow(v.second)))};
  }

  template <class Sink, class D>
  static HWY_INLINE void store(D, const Pair<D>& v, std::byte* out) {
    const Bits elems[] = {narrow(v.first), narrow(v.second)};
    std::memcpy(out, elems, sizeof(elems));
  }

  template <class D>
  static HWY_INLINE void spread(D, const Pair<D>& v, float* elems) {
    elems[0] = hn::GetLane(v.first);
    elems[1] = hn::GetLane(v.second);
  }

 private:
  static HWY_INLINE float widen_at(const std::byte* elem) {
    Bits bits;
    std::memcpy(&bits, elem, sizeof(bits));
    return kWiden(bits);
  }

  template <class V>
  static HWY_INLINE Bits narrow(V v) {
    return kNarrow(hn::GetLane(v));
  }
};

inline float fp32_itself(float value) { return value; }

using Bf16Codec = ScalarCodec<std::uint16_t, layout::bf16_to_float, layout::bf16_from_float>;
using Fp16Codec = ScalarCodec<std::uint16_t, layout::fp16_to_float, layout::fp16_from_float>;
using Fp32Codec = ScalarCodec<float, fp32_itself, layout::canonical_float>;

}  // namespace HWY_NAMESPACE
}  // namespace ep::primitives
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET

#endif  // EP_PRIMITIVES_ROW_SCALAR_CODEC_INL_H_
