// SPDX-License-Identifier: Apache-2.0
// Dot products of rows by one warp, bit for bit as row_math.h says.
#pragma once

#include "base/macros.h"
#include "layout/numeric.h"
#include "primitives/coop.cuh"
#include "primitives/ptx.cuh"
#include "primitives/row_codec.cuh"
#include "primitives/row_math.h"
#include "primitives/row_reducer.h"

#include <ep/dtype.h>

#include <cstddef>
#include <cstdint>

namespace ep::primitives {

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

}  // namespace ep::primitives
