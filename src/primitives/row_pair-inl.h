// SPDX-License-Identifier: Apache-2.0
// Vectors of row elements, widened to fp32 and rounded back: one codec per dtype, compiled once per
// CPU target.

// Re-included by foreach_target.h for every target, hence no #pragma once.
#if defined(EP_PRIMITIVES_ROW_PAIR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EP_PRIMITIVES_ROW_PAIR_INL_H_
#undef EP_PRIMITIVES_ROW_PAIR_INL_H_
#else
#define EP_PRIMITIVES_ROW_PAIR_INL_H_
#endif

#include "layout/numeric.h"

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace ep::primitives {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The elements of two fp32 vectors. Which element lies where is the codec's business; arithmetic
/// is lane by lane.
template <class D>
struct Pair {
  hn::Vec<D> first;
  hn::Vec<D> second;
};

template <class D>
HWY_INLINE Pair<D> zero_pair(D d) {
  return {hn::Zero(d), hn::Zero(d)};
}

template <class D>
HWY_INLINE Pair<D> add(D, const Pair<D>& a, const Pair<D>& b) {
  return {hn::Add(a.first, b.first), hn::Add(a.second, b.second)};
}

template <class D>
HWY_INLINE Pair<D> multiply(D, const Pair<D>& a, const Pair<D>& b) {
  return {hn::Mul(a.first, b.first), hn::Mul(a.second, b.second)};
}

/// v, and the NaN that a GPU returns in place of any NaN.
template <class D>
HWY_INLINE hn::Vec<D> canonical(D d, hn::Vec<D> v) {
  const hn::RebindToUnsigned<D> du;
  return hn::IfThenElse(hn::IsNaN(v), hn::BitCast(d, hn::Set(du, layout::kFloatNan)), v);
}

}  // namespace HWY_NAMESPACE
}  // namespace ep::primitives
HWY_AFTER_NAMESPACE();

#endif  // EP_PRIMITIVES_ROW_PAIR_INL_H_
