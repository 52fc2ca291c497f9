// SPDX-License-Identifier: Apache-2.0
// Kernels over one row: copy, reduce, scale, dot. Compiled once per CPU target.

// Re-included by foreach_target.h for every target, hence no #pragma once.
#if defined(EP_PRIMITIVES_ROW_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EP_PRIMITIVES_ROW_KERNELS_INL_H_
#undef EP_PRIMITIVES_ROW_KERNELS_INL_H_
#else
#define EP_PRIMITIVES_ROW_KERNELS_INL_H_
#endif

#include "layout/numeric.h"
#include "primitives/row_codec-inl.h"
#include "primitives/row_math.h"
#include "primitives/row_scalar_codec-inl.h"

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace ep::primitives {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr std::size_t kLineBytes = 64;
inline constexpr std::size_t kGranuleBytes = kRowGranuleBytes;

/// How far a kernel reads ahead. The processor's own prefetchers stop at every page, and rows are a
/// few pages long: sums take a fifth to a quarter less time so (docs/adr/0002).
inline constexpr std::size_t kPrefetchBytes = 1536;

/// One Pair of the codec is `kBytes`, or a part of that where the CPU's vectors are smaller.
template <class Codec, std::size_t kBytes>
using PairTag = hn::CappedTag<float, kBytes / Codec::kElemBytes / 2>;

template <class Codec, class D>
HWY_INLINE std::size_t pair_bytes(D d) {
  return 2 * hn::Lanes(d) * Codec::kElemBytes;
}

/// Bytes up to the next cache line, at most `bytes`.
HWY_INLINE std::size_t bytes_to_line(const std::byte* out, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(out);
  return std::min(bytes, (kLineBytes - address % kLineBytes) % kLineBytes);
}

HWY_INLINE bool is_granule_aligned(const std::byte* out) {
  return reinterpret_cast<std::uintptr_t>(out) % kGranuleBytes == 0;
}

inline HWY_ATTR void stream_bytes(std::byte* dst, const std::byte* src, std::size_t bytes) {
  const hn::CappedTag<std::uint8_t, kLineBytes> d8;
  const std::size_t head = bytes_to_line(dst, bytes);
  std::memcpy(dst, src, head);
  std::size_t at = head;
  for (; at + kLineBytes <= bytes; at += kLineBytes) {
    prefetch_outer(src + at + kPrefetchBytes);
    for (std::size_t part = 0; part < kLineBytes; part += hn::Lanes(d8)) {
      const auto* from = reinterpret_cast<const std::uint8_t*>(src + at + part);
      hn::Stream(hn::LoadU(d8, from), d8, reinterpret_cast<std::uint8_t*>(dst + at + part));
    }
  }
  std::memcpy(dst + at, src + at, bytes - at);
}

/// Calls kernel.write<Sink>(d, out, offset) for every piece of a row, in order. Only whole cache
/// lines are streamed: a non-temporal store of a part of a line costs a read and a write of the
/// line.
template <class Codec, class Sink, class Kernel>
HWY_INLINE void write_row(std::byte* out, std::size_t bytes, const Kernel& kernel) {
  const PairTag<Codec, kLineBytes> d;
  const PairTag<Codec, kGranuleBytes> d_granule;
  const std::size_t step = pair_bytes<Codec>(d);
  const std::size_t small_step = pair_bytes<Codec>(d_granule);
  std::size_t at = 0;
  for (const std::size_t head = bytes_to_line(out, bytes); at < head; at += small_step) {
    kernel.template write<CachedSink>(d_granule, out + at, at);
  }
  const std::size_t lines_end = at + (bytes - at) / kLineBytes * kLineBytes;
  for (; at < lines_end; at += step) kernel.template write<Sink>(d, out + at, at);
  for (; at < bytes; at += small_step) {
    kernel.template write<CachedSink>(d_granule, out + at, at);
  }
}

template <class Codec, class Kernel>
HWY_INLINE void write_row_as(RowStore store,
                             std::byte* out,
                             std::size_t bytes,
                             const Kernel& kernel) {
  if (store == RowStore::kStream && is_granule_aligned(out)) {
    write_row<Codec, StreamSink>(out, bytes, kernel);
  } else {
    write_row<Codec, CachedSink>(out, bytes, kernel);
  }
}

enum class SumShape : std::uint8_t {
  kOneTermHops,  ///< unweighted; rounding after each hop changes nothing and is left out
  kUnweighted,
  kWeighted,
};

template <class Codec, SumShape kShape>
struct SumKernel {
  const ReduceRow& reduce;

  template <class Sink, class D>
  HWY_INLINE void write(D d, std::byte* out, std::size_t at) const {
    const RowTerm* term = reduce.terms.data();
    const RowTerm* const end = term + reduce.terms.size();
    Pair<D> total = term == end ? zero_pair(d) : hop(d, term, end, at);
    while (term != end) total = add(d, total, hop(d, term, end, at));
    if (reduce.bias != nullptr) total = add(d, total, Codec::load(d, reduce.bias + at));
    Codec::template store<Sink>(d, total, out);
  }

 private:
  /// Leaves `term` behind the hop.
  template <class D>
  HWY_INLINE static Pair<D> hop(D d, const RowTerm*& term, const RowTerm* end, std::size_t at) {
    if constexpr (kShape == SumShape::kOneTermHops) {
      return value(d, *term++, at);
    } else {
      Pair<D> partial = value(d, *term, at);
      while (!(term++)->ends_hop && term != end) partial = add(d, partial, value(d, *term, at));
      return Codec::round(d, partial);
    }
  }

  template <class D>
  HWY_INLINE static Pair<D> value(D d, const RowTerm& term, std::size_t at) {
    hwy::Prefetch(term.row + at + kPrefetchBytes);
    const Pair<D> elems = Codec::load(d, term.row + at);
    if constexpr (kShape == SumShape::kWeighted) {
      const auto weight = hn::Set(d, term.weight);
      return multiply(d, {weight, weight}, elems);
    } else {
      return elems;
    }
  }
};

template <class Codec>
HWY_ATTR void reduce_typed(std::byte* out, const ReduceRow& reduce, RowStore store) {
  const std::size_t bytes = static_cast<std::size_t>(reduce.num_elems) * Codec::kElemBytes;
  if (reduce.weighted) {
    write_row_as<Codec>(store, out, bytes, SumKernel<Codec, SumShape::kWeighted>{reduce});
  } else if (std::ranges::all_of(reduce.terms, &RowTerm::ends_hop)) {
    write_row_as<Codec>(store, out, bytes, SumKernel<Codec, SumShape::kOneTermHops>{reduce});
  } else {
    write_row_as<Codec>(store, out, bytes, SumKernel<Codec, SumShape::kUnweighted>{reduce});
  }
}

/// A dot product in progress. The accumulators of one chunk of kDotLanes elements lie in pairs, in
/// the codec's order of lanes; Pair p holds accumulators 2 * Lanes * p and the following.
template <class Codec>
class DotKernel {
 public:
  HWY_INLINE DotKernel() {
    for (std::size_t pair = 0; pair < num_pairs(); ++pair) put(pair, zero_pair(d_));
  }

  HWY_INLINE void add_row(const std::byte* a, const std::byte* b, std::size_t bytes) {
    const std::size_t step = pair_bytes<Codec>(d_);
    std::size_t pair = 0;
    std::size_t at = 0;
    for (; at + step <= bytes; at += step) {
      hwy::Prefetch(a + at + kPrefetchBytes);
      hwy::Prefetch(b + at + kPrefetchBytes);
      add_pair(pair, a + at, b + at);
      pair = pair + 1 == num_pairs() ? 0 : pair + 1;
    }
    if (at < bytes) add_part(pair, a + at, b + at, bytes - at);
  }

  HWY_INLINE float fold() {
    std::size_t pairs = num_pairs();
    while (pairs > 1) {
      pairs /= 2;
      for (std::size_t pair = 0; pair < pairs; ++pair) {
        put(pair, add(d_, get(pair), get(pair + pairs)));
      }
    }
    Codec::spread(d_, get(0), sums_.data());
    for (std::size_t width = hn::Lanes(d_); width >= 1; width /= 2) {
      for (std::size_t i = 0; i < width; ++i) sums_[i] = sums_[i] + sums_[i + width];
    }
    return layout::canonical_float(sums_[0]);
  }

 private:
  using Tag = PairTag<Codec, kLineBytes>;

  static constexpr std::size_t kNumSums = kDotLanes;

  HWY_INLINE std::size_t num_pairs() const { return kNumSums / (2 * hn::Lanes(d_)); }

  HWY_INLINE Pair<Tag> get(std::size_t pair) const {
    const float* sums = sums_.data() + pair * 2 * hn::Lanes(d_);
    return {hn::Load(d_, sums), hn::Load(d_, sums + hn::Lanes(d_))};
  }

  HWY_INLINE void put(std::size_t pair, const Pair<Tag>& v) {
    float* sums = sums_.data() + pair * 2 * hn::Lanes(d_);
    hn::Store(v.first, d_, sums);
    hn::Store(v.second, d_, sums + hn::Lanes(d_));
  }

  HWY_INLINE void add_pair(std::size_t pair, const std::byte* a, const std::byte* b) {
    const Pair<Tag> products = multiply(d_, Codec::load(d_, a), Codec::load(d_, b));
    put(pair, add(d_, get(pair), products));
  }

  /// Pads with zeros. That is exact: an accumulator is never -0, and x + (+0) = x for every other
  /// x.
  HWY_INLINE void add_part(std::size_t pair,
                           const std::byte* a,
                           const std::byte* b,
                           std::size_t bytes) {
    std::array<std::byte, kLineBytes> padded_a{};
    std::array<std::byte, kLineBytes> padded_b{};
    std::memcpy(padded_a.data(), a, bytes);
    std::memcpy(padded_b.data(), b, bytes);
    add_pair(pair, padded_a.data(), padded_b.data());
  }

  Tag d_;
  alignas(kLineBytes) std::array<float, kNumSums> sums_;
};

template <class Codec>
HWY_ATTR float dot_typed(const std::byte* a, const std::byte* b, std::size_t bytes) {
  DotKernel<Codec> dot;
  dot.add_row(a, b, bytes);
  return dot.fold();
}

}  // namespace HWY_NAMESPACE
}  // namespace ep::primitives
HWY_AFTER_NAMESPACE();

#endif  // EP_PRIMITIVES_ROW_KERNELS_INL_H_
