// SPDX-License-Identifier: Apache-2.0
// Copies and arithmetic of whole rows on the host: vector code chosen for the CPU at run time, same
// bits on every one.
#pragma once

#include <ep/dtype.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace ep::primitives {

/// Whether the destination of a row goes through this core's caches.
enum class RowStore : std::uint8_t {
  kStream,  ///< non-temporal: for rows that this core does not read soon; needs stream_fence()
            ///< before publication
  kCached,  ///< ordinary stores: for few rows that are read at once, or a destination that fits the
            ///< cache
};

/// Every row is a multiple of this many bytes. Rows need no alignment; a destination that is not
/// aligned to it is written with ordinary stores, whatever the policy.
inline constexpr std::int64_t kRowGranuleBytes = 16;

/// Copies one row with non-temporal stores. Any size and alignment is copied; both multiples of 16
/// are fast. Sanitizer builds copy with memcpy, so that the access is seen.
void stream_row(std::byte* dst, const std::byte* src, std::size_t bytes);

/// Orders all earlier kStream stores of this thread before its later stores. A release store does
/// not do that on x86: it is a plain `mov`, which keeps its place among ordinary stores only, while
/// non-temporal stores drain from write-combining buffers in any order. So: rows, stream_fence(),
/// then the release that publishes them.
void stream_fence();

/// Asks for a line of a row that is read soon, into the second-level cache. Any address will do.
inline void prefetch_outer(const std::byte* line) {
  constexpr int kForReading = 0;
  constexpr int kSecondLevel = 2;
  __builtin_prefetch(line, kForReading, kSecondLevel);
}

/// Asks for the beginning of a row that a later call reads: the kernels read ahead within their own
/// rows only. 6-8% less time for sums of rows that do not follow each other (docs/adr/0002).
inline void prefetch_row(const std::byte* row) {
  constexpr std::ptrdiff_t kLineBytes = 64;
  constexpr std::ptrdiff_t kAheadBytes = 1024;
  for (std::ptrdiff_t at = 0; at < kAheadBytes; at += kLineBytes) prefetch_outer(row + at);
}

/// Copies one row as the policy says.
inline void copy_row(std::byte* dst, const std::byte* src, std::size_t bytes, RowStore store) {
  if (store == RowStore::kStream) {
    stream_row(dst, src, bytes);
  } else {
    std::memcpy(dst, src, bytes);
  }
}

/// One row to be added. `weight` is read only if ReduceRow::weighted. A term that ends a hop is the
/// last of those that are summed before their sum crosses a link.
struct RowTerm {
  const std::byte* row = nullptr;
  float weight = 1.0F;
  bool ends_hop = true;
};

/// The sum of one output row in fp32, terms in order, multiply then add, never fused:
///
///   | step             | value                                                           |
///   |------------------|-----------------------------------------------------------------|
///   | value of a term  | weighted ? weight * y : y                                       |
///   | partial of a hop | first value, then + each further value up to one that ends_hop  |
///   | after the hop    | round(partial) to the dtype, widened again                      |
///   | total            | first hop's rounded partial, then + each further hop's          |
///   | bias, if given   | total + bias                                                    |
///   | output           | round(total)                                                    |
///
/// The last term ends a hop whether it says so or not. No term counts as a total of +0. Rounding is
/// to nearest, ties to even; a NaN result is 0x7FFF (bf16, fp16) or 0x7FFFFFFF (fp32), what a GPU
/// writes. A single unweighted term without bias is copied: its NaNs keep their bits.
struct ReduceRow {
  std::span<const RowTerm> terms{};
  const std::byte* bias = nullptr;
  DType dtype = DType::kBf16;  ///< is_reducible(dtype)
  std::int64_t num_elems = 0;  ///< bytes are a multiple of kRowGranuleBytes
  bool weighted = false;
};

/// `out` overlaps no input.
void reduce_row(std::byte* out, const ReduceRow& reduce, RowStore store);

/// dst = round(weight * src), element by element; dst may be src. Same dtypes, sizes, rounding and
/// NaNs as ReduceRow.
void scale_row(std::byte* dst,
               const std::byte* src,
               float weight,
               DType dtype,
               std::int64_t num_elems,
               RowStore store);

/// Number of accumulators of dot_rows: 8 per lane of a warp.
inline constexpr int kDotLanes = 256;

/// Dot product in fp32, in an order that a warp reproduces: accumulator j starts at +0 and adds
/// a[i] * b[i] for every i with i % 256 == j, in ascending i; then for width = 128, 64, ..., 1:
/// acc[i] = acc[i] + acc[i + width] for i < width; the result is acc[0], a NaN as 0x7FFFFFFF. Same
/// dtypes and sizes as ReduceRow.
float dot_rows(const std::byte* a, const std::byte* b, DType dtype, std::int64_t num_elems);

}  // namespace ep::primitives
