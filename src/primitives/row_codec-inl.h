// SPDX-License-Identifier: Apache-2.0
// Vectors of row elements, widened to fp32 and rounded back: one codec per dtype, compiled once per
// CPU target.

// Re-included by foreach_target.h for every target, hence no #pragma once.
#if defined(EP_PRIMITIVES_ROW_CODEC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EP_PRIMITIVES_ROW_CODEC_INL_H_
#undef EP_PRIMITIVES_ROW_CODEC_INL_H_
#else
#define EP_PRIMITIVES_ROW_CODEC_INL_H_
#endif

#include "layout/numeric.h"
#include "primitives/row_pair-inl.h"
#include "primitives/row_sanitizer.h"

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#if HWY_TARGET != HWY_SCALAR

HWY_BEFORE_NAMESPACE();
namespace ep::primitives {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// True where Highway converts fp16 with an instruction; elsewhere the codec does it with integers,
/// since the emulation of Highway 1.0.3 does not round but truncate.
inline constexpr bool kHasFp16Instruction =
    HWY_ARCH_X86 != 0 && (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3);

/// Rows carry no type: they are loaded and stored as bytes.
template <class D>
HWY_INLINE hn::Vec<D> load_bytes(D d, const std::byte* row) {
  const hn::Repartition<std::uint8_t, D> d8;
  return hn::BitCast(d, hn::LoadU(d8, reinterpret_cast<const std::uint8_t*>(row)));
}

struct CachedSink {
  template <class D>
  static HWY_INLINE void store(D, hn::Vec<D> v, std::byte* out) {
    const hn::Repartition<std::uint8_t, D> d8;
    hn::StoreU(hn::BitCast(d8, v), d8, reinterpret_cast<std::uint8_t*>(out));
  }
};

/// `out` is aligned to the vector.
struct NonTemporalSink {
  template <class D>
  static HWY_INLINE void store(D, hn::Vec<D> v, std::byte* out) {
    const hn::Repartition<std::uint8_t, D> d8;
    hn::Stream(hn::BitCast(d8, v), d8, reinterpret_cast<std::uint8_t*>(out));
  }
};

using StreamSink = std::conditional_t<kIsSanitized, CachedSink, NonTemporalSink>;

/// Each 32-bit lane of a row holds two elements: the even one becomes `first` by a shift, the odd
/// one `second` by a mask, so that nothing crosses lanes.
struct Bf16Codec {
  static constexpr std::size_t kElemBytes = 2;

  template <class D>
  static HWY_INLINE Pair<D> load(D d, const std::byte* row) {
    const hn::RebindToUnsigned<D> du;
    const auto raw = load_bytes(du, row);
    return {hn::BitCast(d, hn::ShiftLeft<16>(raw)), hn::BitCast(d, hn::And(raw, upper_half(du)))};
  }

  template <class D>
  static HWY_INLINE Pair<D> round(D d, const Pair<D>& v) {
    const hn::RebindToUnsigned<D> du;
    return {hn::BitCast(d, hn::And(rounded_bits(d, v.first), upper_half(du))),
            hn::BitCast(d, hn::And(rounded_bits(d, v.second), upper_half(du)))};
  }

  template <class Sink, class D>
  static HWY_INLINE void store(D d, const Pair<D>& v, std::byte* out) {
    const hn::RebindToUnsigned<D> du;
    const auto even = hn::ShiftRight<16>(rounded_bits(d, v.first));
    const auto odd = hn::And(rounded_bits(d, v.second), upper_half(du));
    Sink::store(du, hn::Or(even, odd), out);
  }

  template <class D>
  static HWY_INLINE void spread(D d, const Pair<D>& v, float* elems) {
    hn::StoreInterleaved2(v.first, v.second, d, elems);
  }

 private:
  template <class DU>
  static HWY_INLINE hn::Vec<DU> upper_half(DU du) {
    return hn::Set(du, 0xFFFF0000U);
  }

  /// The bf16 in the upper half of each lane; the lower half is undefined.
  template <class D>
  static HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> rounded_bits(D d, hn::Vec<D> v) {
    const hn::RebindToUnsigned<D> du;
    const auto bits = hn::BitCast(du, v);
    const auto is_odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1U));
    const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7FFFU)), is_odd);
    const auto nan = hn::BitCast(d, hn::Set(du, layout::kFloatNan));
    return hn::BitCast(du, hn::IfThenElse(hn::IsNaN(v), nan, hn::BitCast(d, rounded)));
  }
};

/// fp32 from the fp16 in the lower half of each lane; the upper half is zero.
template <class D>
HWY_INLINE hn::Vec<D> widen_fp16(D d, hn::Vec<hn::RebindToUnsigned<D>> bits) {
  const hn::RebindToUnsigned<D> du;
  constexpr layout::NarrowFormat kFormat = layout::kFp16Format;
  const auto magnitude = hn::And(bits, hn::Set(du, kFormat.sign_bit() - 1U));
  const auto sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude));
  const auto shifted = hn::ShiftLeft<kFormat.dropped_bits()>(magnitude);
  const auto normal = hn::Add(shifted, hn::Set(du, layout::float_power_of_two(-kFormat.bias())));
  // Reading a subnormal's mantissa behind a hidden 1 makes it too large by the smallest normal.
  const auto smallest = hn::Set(du, layout::float_power_of_two(1 - kFormat.bias()));
  const auto with_hidden_one = hn::BitCast(d, hn::Add(shifted, smallest));
  const auto subnormal = hn::BitCast(du, hn::Sub(with_hidden_one, hn::BitCast(d, smallest)));
  const auto special = hn::Or(shifted, hn::Set(du, layout::kFloatInfinity));
  const auto is_subnormal = hn::Lt(magnitude, hn::Set(du, 1U << kFormat.mantissa_bits));
  const auto is_special = hn::Gt(magnitude, hn::Set(du, kFormat.max_finite));
  const auto finite = hn::IfThenElse(is_subnormal, subnormal, normal);
  return hn::BitCast(d, hn::Or(sign, hn::IfThenElse(is_special, special, finite)));
}

/// The magnitude of the fp16 nearest to a finite fp32 magnitude, as if its exponent had no limit.
template <class D>
HWY_INLINE hn::Vec<D> round_magnitude_to_fp16(D du, hn::Vec<D> magnitude) {
  const hn::Repartition<float, D> d;
  constexpr layout::NarrowFormat kFormat = layout::kFp16Format;
  constexpr int kDropped = kFormat.dropped_bits();
  constexpr std::uint32_t kBelowHalf = (1U << (kDropped - 1)) - 1U;
  const auto is_odd = hn::And(hn::ShiftRight<kDropped>(magnitude), hn::Set(du, 1U));
  const auto bias = hn::Set(du, kBelowHalf - layout::float_power_of_two(-kFormat.bias()));
  const auto normal = hn::ShiftRight<kDropped>(hn::Add(hn::Add(magnitude, bias), is_odd));
  // The last place of the anchor is the smallest step of fp16, so the addition rounds to it.
  const auto anchor = hn::Set(du, layout::float_power_of_two(1 - kFormat.bias() + kDropped));
  const auto anchored = hn::Add(hn::BitCast(d, magnitude), hn::BitCast(d, anchor));
  const auto subnormal = hn::Sub(hn::BitCast(du, anchored), anchor);
  const auto smallest_normal = hn::Set(du, layout::float_power_of_two(1 - kFormat.bias()));
  return hn::IfThenElse(hn::Lt(magnitude, smallest_normal), subnormal, normal);
}

/// The fp16 in the lower half of each lane; the upper half is zero.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> narrow_to_fp16(D, hn::Vec<D> v) {
  const hn::RebindToUnsigned<D> du;
  constexpr layout::NarrowFormat kFormat = layout::kFp16Format;
  const auto bits = hn::BitCast(du, v);
  const auto magnitude = hn::And(bits, hn::Set(du, ~layout::kFloatSignBit));
  const auto sign = hn::ShiftRight<16>(hn::Xor(bits, magnitude));
  const auto infinity = hn::Set(du, kFormat.max_finite + 1U);
  const auto number = hn::Min(round_magnitude_to_fp16(du, magnitude), infinity);
  const auto is_nan = hn::Gt(magnitude, hn::Set(du, layout::kFloatInfinity));
  const auto nan = hn::Set(du, std::uint32_t{layout::kFp16Nan});
  return hn::IfThenElse(is_nan, nan, hn::Or(sign, number));
}

/// With the instruction, `first` is the lower half of the elements. Without it, elements are split
/// by parity as bf16.
struct Fp16Codec {
  static constexpr std::size_t kElemBytes = 2;

  template <class D>
  static HWY_INLINE Pair<D> load(D d, const std::byte* row) {
    if constexpr (kHasFp16Instruction) {
      return {promote(d, row), promote(d, row + hn::Lanes(d) * kElemBytes)};
    } else {
      const hn::RebindToUnsigned<D> du;
      const auto raw = load_bytes(du, row);
      return {widen_fp16(d, hn::And(raw, hn::Set(du, 0xFFFFU))),
              widen_fp16(d, hn::ShiftRight<16>(raw))};
    }
  }

  template <class D>
  static HWY_INLINE Pair<D> round(D d, const Pair<D>& v) {
    if constexpr (kHasFp16Instruction) {
      return {hn::PromoteTo(d, demote(d, v.first)), hn::PromoteTo(d, demote(d, v.second))};
    } else {
      return {widen_fp16(d, narrow_to_fp16(d, v.first)),
              widen_fp16(d, narrow_to_fp16(d, v.second))};
    }
  }

  template <class Sink, class D>
  static HWY_INLINE void store(D d, const Pair<D>& v, std::byte* out) {
    if constexpr (kHasFp16Instruction) {
      const hn::Repartition<std::uint16_t, D> d16;
      const hn::Half<decltype(d16)> d_half;
      const auto lower = hn::BitCast(d_half, demote(d, v.first));
      const auto upper = hn::BitCast(d_half, demote(d, v.second));
      Sink::store(d16, hn::Combine(d16, upper, lower), out);
    } else {
      const hn::RebindToUnsigned<D> du;
      const auto odd = hn::ShiftLeft<16>(narrow_to_fp16(d, v.second));
      Sink::store(du, hn::Or(narrow_to_fp16(d, v.first), odd), out);
    }
  }

  template <class D>
  static HWY_INLINE void spread(D d, const Pair<D>& v, float* elems) {
    if constexpr (kHasFp16Instruction) {
      hn::StoreU(v.first, d, elems);
      hn::StoreU(v.second, d, elems + hn::Lanes(d));
    } else {
      hn::StoreInterleaved2(v.first, v.second, d, elems);
    }
  }

 private:
  template <class D>
  static HWY_INLINE hn::Vec<D> promote(D d, const std::byte* row) {
    const hn::Rebind<hwy::float16_t, D> d_half;
    return hn::PromoteTo(d, load_bytes(d_half, row));
  }

  template <class D>
  static HWY_INLINE hn::Vec<hn::Rebind<hwy::float16_t, D>> demote(D d, hn::Vec<D> v) {
    return hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), canonical(d, v));
  }
};

struct Fp32Codec {
  static constexpr std::size_t kElemBytes = 4;

  template <class D>
  static HWY_INLINE Pair<D> load(D d, const std::byte* row) {
    return {load_bytes(d, row), load_bytes(d, row + hn::Lanes(d) * kElemBytes)};
  }

  template <class D>
  static HWY_INLINE Pair<D> round(D, const Pair<D>& v) {
    return v;
  }

  template <class Sink, class D>
  static HWY_INLINE void store(D d, const Pair<D>& v, std::byte* out) {
    Sink::store(d, canonical(d, v.first), out);
    Sink::store(d, canonical(d, v.second), out + hn::Lanes(d) * kElemBytes);
  }

  template <class D>
  static HWY_INLINE void spread(D d, const Pair<D>& v, float* elems) {
    hn::StoreU(v.first, d, elems);
    hn::StoreU(v.second, d, elems + hn::Lanes(d));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace ep::primitives
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET

#endif  // EP_PRIMITIVES_ROW_CODEC_INL_H_
