// SPDX-License-Identifier: Apache-2.0
// Makes rows from hashes, eight bytes at a time.
#include "bench/row_source.h"

#include "bench/hash.h"

#include <algorithm>
#include <cstring>

namespace ep::bench {
namespace {

/// Turns random bits into lanes of finite numbers: sign and fraction stay, the exponent is one of
/// four, so that magnitudes lie in [1/16, 1).
struct LaneMask {
  std::uint64_t keep;         // sign and fraction
  std::uint64_t exponent;     // lowest exponent
  std::uint64_t exponent_or;  // random bits added to it
};

constexpr LaneMask kBf16Lanes = {0x807f807f807f807fu, 0x3d803d803d803d80u, 0x0180018001800180u};
constexpr LaneMask kFp16Lanes = {0x83ff83ff83ff83ffu, 0x2c002c002c002c00u, 0x0c000c000c000c00u};
constexpr LaneMask kFp32Lanes = {0x807fffff807fffffu, 0x3d8000003d800000u, 0x0180000001800000u};

LaneMask lanes_of(DType dtype) {
  if (dtype == DType::kBf16) return kBf16Lanes;
  return dtype == DType::kFp16 ? kFp16Lanes : kFp32Lanes;
}

/// The index-th 8 bytes of a row.
std::uint64_t random_lanes(std::uint64_t key, std::uint64_t index, const LaneMask& lanes) {
  const std::uint64_t bits = mix(key + index * kGolden);
  return (bits & lanes.keep) | (lanes.exponent + (bits & lanes.exponent_or));
}

/// Rows are multiples of 16 bytes.
void fill_lanes(std::uint64_t key, const LaneMask& lanes, std::span<std::byte> out) {
  const std::size_t num_words = out.size() / sizeof(std::uint64_t);
  for (std::size_t i = 0; i < num_words; ++i) {
    const std::uint64_t word = random_lanes(key, i, lanes);
    std::memcpy(&out[i * sizeof(word)], &word, sizeof(word));
  }
}

void fill_floats(const RowKey& key, std::span<float> out) {
  const std::span<std::byte> bytes = std::as_writable_bytes(out);
  const std::size_t name_bytes = std::min<std::size_t>(kNameElems * sizeof(float), bytes.size());
  fill_lanes(key.content, kFp32Lanes, bytes);
  fill_lanes(key.name, kFp32Lanes, bytes.first(name_bytes));
}

float exact_elem(std::uint64_t key, std::size_t index) {
  constexpr std::uint64_t kNumValues = 2 * kMaxExactElem + 1;
  const std::uint64_t bits = mix(key + index * kGolden);
  return static_cast<float>(static_cast<int>(bits % kNumValues) - kMaxExactElem);
}

}  // namespace

RowSource::RowSource(const RowFormat& format) : format_(format) {
  wide_.resize(static_cast<std::size_t>(format.hidden));
}

void RowSource::fill(const RowKey& key, std::span<std::byte> row, std::span<float> scales) {
  if (format_.exact) return fill_exact(key, row, scales);
  if (is_quantised(format_.dtype)) {
    fill_floats(key, wide_);
    return quantise_row(wide_, format_.dtype, row, scales);
  }
  const LaneMask lanes = lanes_of(format_.dtype);
  const auto name_bytes = static_cast<std::size_t>(kNameElems * size_of(format_.dtype));
  fill_lanes(key.content, lanes, row);
  fill_lanes(key.name, lanes, row.first(std::min(name_bytes, row.size())));
}

void RowSource::fill_exact(const RowKey& key, std::span<std::byte> row, std::span<float> scales) {
  for (std::size_t i = 0; i < wide_.size(); ++i) {
    wide_[i] = exact_elem(i < kNameElems ? key.name : key.content, i);
  }
  if (!is_quantised(format_.dtype)) return narrow_row(wide_, format_.dtype, row);
  // Powers of two, so that element / scale and the way back are exact.
  for (std::size_t block = 0; block < scales.size(); ++block) {
    scales[block] = (mix(key.content ^ block) & 1) == 0 ? 1.0F : 0.5F;
  }
  for (std::size_t i = 0; i < wide_.size(); ++i) {
    wide_[i] /= scales[i / static_cast<std::size_t>(kScaleBlock)];
  }
  narrow_row(wide_, format_.dtype, row);
}

}  // namespace ep::bench
