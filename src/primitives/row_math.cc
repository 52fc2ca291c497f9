// SPDX-License-Identifier: Apache-2.0
// Chooses the row kernels of the CPU that runs, by Highway's dynamic dispatch.

#include "primitives/row_math.h"

#include "base/check.h"
#include "primitives/row_sanitizer.h"
#include "primitives/row_targets.h"

#include <hwy/cache_control.h>

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "primitives/row_math.cc"
#include <hwy/foreach_target.h>
// Everything below is compiled once per target.
#include "primitives/row_kernels-inl.h"

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ep::primitives {
namespace HWY_NAMESPACE {

inline HWY_ATTR void reduce_bytes(std::byte* out, const ReduceRow& reduce, RowStore store) {
  switch (reduce.dtype) {
    case DType::kBf16:
      return reduce_typed<Bf16Codec>(out, reduce, store);
    case DType::kFp16:
      return reduce_typed<Fp16Codec>(out, reduce, store);
    default:
      return reduce_typed<Fp32Codec>(out, reduce, store);
  }
}

inline HWY_ATTR float dot_bytes(const std::byte* a,
                                const std::byte* b,
                                DType dtype,
                                std::size_t bytes) {
  switch (dtype) {
    case DType::kBf16:
      return dot_typed<Bf16Codec>(a, b, bytes);
    case DType::kFp16:
      return dot_typed<Fp16Codec>(a, b, bytes);
    default:
      return dot_typed<Fp32Codec>(a, b, bytes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ep::primitives
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ep::primitives {
namespace {

HWY_EXPORT(stream_bytes);
HWY_EXPORT(reduce_bytes);
HWY_EXPORT(dot_bytes);

/// The size of a row that the kernels can take; anything else is a bug of the caller.
std::size_t checked_row_bytes(DType dtype, std::int64_t num_elems) {
  const std::int64_t bytes = num_elems * size_of(dtype);
  EP_CHECK(is_reducible(dtype), name_of(dtype));
  EP_CHECK(num_elems >= 0 && bytes % kRowGranuleBytes == 0, "rows are multiples of 16 bytes");
  return static_cast<std::size_t>(bytes);
}

}  // namespace

void stream_row(std::byte* dst, const std::byte* src, std::size_t bytes) {
  if constexpr (kIsSanitized) {
    std::memcpy(dst, src, bytes);
  } else {
    HWY_DYNAMIC_DISPATCH(stream_bytes)(dst, src, bytes);
  }
}

void stream_fence() { hwy::FlushStream(); }

void reduce_row(std::byte* out, const ReduceRow& reduce, RowStore store) {
  const std::size_t bytes = checked_row_bytes(reduce.dtype, reduce.num_elems);
  if (reduce.terms.size() == 1 && !reduce.weighted && reduce.bias == nullptr) {
    return copy_row(out, reduce.terms.front().row, bytes, store);
  }
  HWY_DYNAMIC_DISPATCH(reduce_bytes)(out, reduce, store);
}

void scale_row(std::byte* dst,
               const std::byte* src,
               float weight,
               DType dtype,
               std::int64_t num_elems,
               RowStore store) {
  const RowTerm term{.row = src, .weight = weight};
  reduce_row(dst, {.terms = {&term, 1}, .dtype = dtype, .num_elems = num_elems, .weighted = true},
             store);
}

float dot_rows(const std::byte* a, const std::byte* b, DType dtype, std::int64_t num_elems) {
  return HWY_DYNAMIC_DISPATCH(dot_bytes)(a, b, dtype, checked_row_bytes(dtype, num_elems));
}

}  // namespace ep::primitives
#endif  // HWY_ONCE
