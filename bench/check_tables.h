// SPDX-License-Identifier: Apache-2.0
// What a device needs for checking results where they lie, and the verdict on one piece of them:
// one source for GPU and processor, which shares nothing with the library.
#pragma once

#include "base/macros.h"
#include "bench/elem_math.h"

#include <ep/dtype.h>

#include <cstddef>
#include <cstdint>

namespace ep::bench {

/// The first thing that was found wrong, and how many rows were. Lies in memory of the device.
struct WrongRows {
  std::uint64_t num_wrong = 0;
  std::uint64_t is_claimed = 0;  ///< of what follows
  std::int64_t round = 0;
  std::int64_t list = kNoList;  ///< of ReceivedTable; then `unit` is a position in it
  std::int64_t row = 0;
  std::int64_t unit = 0;  ///< ReceivedTable: its piece of the row; OutputTable: element

  static constexpr std::int64_t kNoList = -1;
  double expected = 0;
  double tolerance = 0;
  double actual = 0;
};

/// A list of numbers that comes with the rows: sizes, counts, offsets.
struct CheckedList {
  const std::int64_t* got = nullptr;
  const std::int64_t* expected = nullptr;
  std::int64_t size = 0;
};

/// Received rows and what they must be. A row has *units*, numbered in this order: pieces of 16
/// bytes of its elements, then its scales, top-k indices, weights.
struct ReceivedTable {
  static constexpr std::int32_t kPadding = -1;
  static constexpr int kNumLists = 3;
  static constexpr std::int64_t kPieceBytes = 16;
  static constexpr std::int64_t kRight = -1;

  const std::byte* x = nullptr;
  const float* scales = nullptr;
  const std::int64_t* topk_idx = nullptr;
  const float* topk_weights = nullptr;
  const std::byte* sent = nullptr;  ///< rows of all ranks
  const float* sent_scales = nullptr;
  const std::int32_t* sources = nullptr;  ///< by received row: row of `sent`, or kPadding
  const std::int64_t* expected_idx = nullptr;
  const float* expected_weights = nullptr;
  CheckedList lists[kNumLists];
  std::int64_t num_rows = 0;
  std::int64_t row_bytes = 0;
  std::int64_t num_scales = 0;
  std::int64_t num_idx = 0;      ///< per row
  std::int64_t num_weights = 0;  ///< per row
  std::int64_t round = 0;

  /// Rows, then lists.
  EP_HOST_DEVICE std::int64_t num_items() const { return num_rows + kNumLists; }
  EP_HOST_DEVICE std::int64_t num_pieces() const { return row_bytes / kPieceBytes; }
  EP_HOST_DEVICE std::int64_t num_units() const {
    return num_pieces() + num_scales + num_idx + num_weights;
  }
};

struct alignas(16) RowPiece {
  std::uint64_t halves[2];
};

EP_HOST_DEVICE inline bool are_equal_bits(float a, float b) {
  return bits_as<std::uint32_t>(a) == bits_as<std::uint32_t>(b);
}

EP_HOST_DEVICE inline bool is_unit_right(const ReceivedTable& table,
                                         std::int64_t row,
                                         std::int64_t unit) {
  const std::int32_t source = table.sources[row];
  const bool is_padding = source == ReceivedTable::kPadding;
  std::int64_t at = unit;
  if (at < table.num_pieces()) {
    const auto got = reinterpret_cast<const RowPiece*>(table.x + row * table.row_bytes)[at];
    if (is_padding) return got.halves[0] == 0 && got.halves[1] == 0;
    const auto sent = reinterpret_cast<const RowPiece*>(table.sent + source * table.row_bytes)[at];
    return got.halves[0] == sent.halves[0] && got.halves[1] == sent.halves[1];
  }
  // Padding has no other contents.
  if (is_padding) return true;
  at -= table.num_pieces();
  if (at < table.num_scales) {
    return are_equal_bits(table.scales[row * table.num_scales + at],
                          table.sent_scales[source * table.num_scales + at]);
  }
  at -= table.num_scales;
  if (at < table.num_idx) {
    return table.topk_idx[row * table.num_idx + at] == table.expected_idx[row * table.num_idx + at];
  }
  at -= table.num_idx;
  return are_equal_bits(table.topk_weights[row * table.num_weights + at],
                        table.expected_weights[row * table.num_weights + at]);
}

/// The first wrong unit among those of one of `num_lanes` lanes, or kRight. `item` is a row, or
/// num_rows + a list.
EP_HOST_DEVICE inline std::int64_t first_wrong_unit(const ReceivedTable& table,
                                                    std::int64_t item,
                                                    int lane,
                                                    int num_lanes) {
  if (item < table.num_rows) {
    for (std::int64_t unit = lane; unit < table.num_units(); unit += num_lanes) {
      if (!is_unit_right(table, item, unit)) return unit;
    }
    return ReceivedTable::kRight;
  }
  const CheckedList& list = table.lists[item - table.num_rows];
  for (std::int64_t at = lane; at < list.size; at += num_lanes) {
    if (list.got[at] != list.expected[at]) return at;
  }
  return ReceivedTable::kRight;
}

EP_HOST_DEVICE inline void note_unit(const ReceivedTable& table,
                                     std::int64_t item,
                                     std::int64_t unit,
                                     WrongRows& wrong) {
  wrong.round = table.round;
  wrong.list = item < table.num_rows ? WrongRows::kNoList : item - table.num_rows;
  wrong.row = item;
  wrong.unit = unit;
}

/// An expert's contribution to a token.
struct TermEntry {
  WeightedFunction function;
  std::int64_t rank = 0;
};

/// Output rows, [T, H] contiguous, and what they are made of (bench/reference.h).
struct OutputTable {
  const std::byte* out = nullptr;
  const std::byte* sent = nullptr;  ///< rows of this rank
  const float* sent_scales = nullptr;
  const TermEntry* terms = nullptr;  ///< [T, max_terms], by rank, then in k order
  const std::int32_t* num_terms = nullptr;
  std::int64_t num_rows = 0;
  std::int64_t hidden = 0;
  std::int64_t row_bytes = 0;  ///< of `sent`
  std::int64_t num_scales = 0;
  std::int64_t scale_block = 1;
  std::int64_t max_terms = 0;
  std::int64_t out_row_bytes = 0;
  DType dtype = DType::kBf16;
  DType out_dtype = DType::kBf16;
  bool rounds_terms = false;  ///< each term is a row of out_dtype
  bool is_exact = false;
  std::int64_t round = 0;
};

inline constexpr std::uint64_t kMinusZero = std::uint64_t{1} << 63;  // as a double

struct ElemVerdict {
  double expected = 0;
  double tolerance = 0;
  double actual = 0;
  bool is_right = false;
};

/// Element of a row as it was sent, times its scale.
EP_HOST_DEVICE inline double sent_elem(const OutputTable& table,
                                       std::int64_t token,
                                       std::int64_t elem) {
  const double value = elem_of(table.dtype, table.sent + token * table.row_bytes, elem);
  if (table.num_scales == 0) return value;
  return value * static_cast<double>(
                     table.sent_scales[token * table.num_scales + elem / table.scale_block]);
}

EP_HOST_DEVICE inline void round_bounded(DType dtype, double (&sum)[2]) {
  if (dtype == DType::kFp32) return;  // the additions have rounded already
  sum[1] += half_ulp(dtype, std::fabs(sum[0]) + sum[1]);
}

/// As Reference::compute() and compare() in one node.
EP_HOST_DEVICE inline ElemVerdict check_elem(const OutputTable& table,
                                             std::int64_t token,
                                             std::int64_t elem) {
  const double x = sent_elem(table, token, elem);
  const TermEntry* terms = table.terms + token * table.max_terms;
  const int num_terms = table.num_terms[token];
  double total[2] = {0, 0};
  double hop[2] = {0, 0};
  int num_hops = 0;
  for (int t = 0; t < num_terms; ++t) {
    if (t == 0 || terms[t].rank != terms[t - 1].rank) hop[0] = hop[1] = 0;
    add_function_of(x, terms[t].function, table.out_dtype, table.rounds_terms, hop);
    if (t + 1 < num_terms && terms[t + 1].rank == terms[t].rank) continue;
    round_bounded(table.out_dtype, hop);
    add_bounded(total[0], total[1], hop[0], hop[1]);
    ++num_hops;
  }
  if (num_hops > 1) round_bounded(table.out_dtype, total);
  ElemVerdict verdict;
  verdict.expected = total[0];
  verdict.tolerance = table.is_exact ? 0 : total[1];
  verdict.actual = elem_of(table.out_dtype, table.out + token * table.out_row_bytes, elem);
  const bool is_minus_zero = table.is_exact && bits_as<std::uint64_t>(verdict.actual) == kMinusZero;
  // Written so that a NaN is wrong.
  verdict.is_right =
      std::fabs(verdict.actual - verdict.expected) <= verdict.tolerance && !is_minus_zero;
  return verdict;
}

EP_HOST_DEVICE inline void note_elem(const OutputTable& table,
                                     std::int64_t token,
                                     std::int64_t elem,
                                     const ElemVerdict& verdict,
                                     WrongRows& wrong) {
  wrong.round = table.round;
  wrong.row = token;
  wrong.unit = elem;
  wrong.expected = verdict.expected;
  wrong.tolerance = verdict.tolerance;
  wrong.actual = verdict.actual;
}

}  // namespace ep::bench
