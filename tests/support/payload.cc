// SPDX-License-Identifier: Apache-2.0
// Payload that says where it came from, poison for outputs, and guarded memory.
#include "tests/support/payload.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

namespace ep::test {
namespace {

// Marks the first word of a block, so that zeros, poison and canaries never look like payload.
constexpr std::uint32_t kMark = 0x5A000000;
constexpr std::uint32_t kRankMask = 0x00FFFFFF;
constexpr std::int64_t kGuardBytes = 256;
constexpr std::int64_t kAlignment = 64;

using Block = std::array<std::uint32_t, 4>;
static_assert(sizeof(Block) == kBlockBytes);

Block block_of(const PayloadId& id, std::int64_t block) {
  return {kMark | static_cast<std::uint32_t>(id.src_rank), static_cast<std::uint32_t>(id.token),
          static_cast<std::uint32_t>(block), id.call};
}

std::string describe(const Block& block) {
  if ((block[0] & ~kRankMask) == kMark) {
    return "rank " + std::to_string(block[0] & kRankMask) + ", token " + std::to_string(block[1]) +
           ", block " + std::to_string(block[2]) + ", call " + std::to_string(block[3]);
  }
  if (block == Block{}) return "zeros";
  constexpr std::array<char, 17> kHexDigits{"0123456789abcdef"};
  std::string text = "words";
  for (const std::uint32_t word : block) {
    text += ' ';
    for (int shift = 28; shift >= 0; shift -= 4) text += kHexDigits[(word >> shift) & 0xF];
  }
  return text;
}

std::byte scale_byte(const PayloadId& id, std::size_t index) {
  const auto source = static_cast<std::uint64_t>(id.src_rank);
  const auto token = static_cast<std::uint64_t>(id.token);
  const std::uint64_t key = mix64((source << 40) ^ token) ^ (std::uint64_t{id.call} << 20);
  return static_cast<std::byte>(mix64(key + index) & 0xFF);
}

}  // namespace

std::uint64_t mix64(std::uint64_t value) {
  value += 0x9E3779B97F4A7C15ULL;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31);
}

void fill_row(std::span<std::byte> row, const PayloadId& id) {
  const auto num_blocks = static_cast<std::int64_t>(row.size()) / kBlockBytes;
  for (std::int64_t index = 0; index < num_blocks; ++index) {
    const Block block = block_of(id, index);
    std::memcpy(row.data() + index * kBlockBytes, block.data(), kBlockBytes);
  }
}

std::string row_mismatch(std::span<const std::byte> row, const PayloadId& id) {
  const auto num_blocks = static_cast<std::int64_t>(row.size()) / kBlockBytes;
  for (std::int64_t index = 0; index < num_blocks; ++index) {
    const Block expected = block_of(id, index);
    Block got;
    std::memcpy(got.data(), row.data() + index * kBlockBytes, kBlockBytes);
    if (got != expected) return "expected " + describe(expected) + ", got " + describe(got);
  }
  return "";
}

void fill_scales(std::span<std::byte> row, const PayloadId& id) {
  for (std::size_t index = 0; index < row.size(); ++index) row[index] = scale_byte(id, index);
}

std::string scales_mismatch(std::span<const std::byte> row, const PayloadId& id) {
  for (std::size_t index = 0; index < row.size(); ++index) {
    const std::byte expected = scale_byte(id, index);
    if (row[index] == expected) continue;
    return "scale byte " + std::to_string(index) + ": expected " +
           std::to_string(std::to_integer<int>(expected)) + ", got " +
           std::to_string(std::to_integer<int>(row[index]));
  }
  return "";
}

void poison(std::span<std::byte> bytes, Poison pattern) {
  if (!bytes.empty()) std::memset(bytes.data(), static_cast<int>(pattern), bytes.size());
}

void fill_canary(std::span<std::byte> bytes) {
  if (!bytes.empty()) std::memset(bytes.data(), kCanary, bytes.size());
}

std::optional<std::int64_t> first_broken(std::span<const std::byte> bytes) {
  const auto broken = std::find_if(bytes.begin(), bytes.end(),
                                   [](std::byte value) { return value != std::byte{kCanary}; });
  if (broken == bytes.end()) return std::nullopt;
  return broken - bytes.begin();
}

GuardedRows::GuardedRows(std::int64_t num_rows, std::int64_t row_bytes, std::int64_t stride_bytes)
    : num_rows_(num_rows),
      row_bytes_(row_bytes),
      stride_bytes_(stride_bytes),
      storage_(static_cast<std::size_t>(num_rows * stride_bytes + 2 * kGuardBytes + kAlignment)) {
  fill_canary(storage_);
  const auto address = reinterpret_cast<std::uintptr_t>(storage_.data() + kGuardBytes);
  const auto misalignment = static_cast<std::int64_t>(address % kAlignment);
  first_ = kGuardBytes + (kAlignment - misalignment) % kAlignment;
  for (std::int64_t index = 0; index < num_rows_; ++index) poison(row(index), Poison::kLarge);
}

std::span<std::byte> GuardedRows::row(std::int64_t index) {
  return {data() + index * stride_bytes_, static_cast<std::size_t>(row_bytes_)};
}

std::span<const std::byte> GuardedRows::row(std::int64_t index) const {
  return {storage_.data() + first_ + index * stride_bytes_, static_cast<std::size_t>(row_bytes_)};
}

std::string GuardedRows::broken_canary() const {
  const std::span<const std::byte> all(storage_);
  if (const auto at = first_broken(all.first(static_cast<std::size_t>(first_)))) {
    return "byte " + std::to_string(*at - first_) + " before the first row was written";
  }
  const std::int64_t gap = stride_bytes_ - row_bytes_;
  for (std::int64_t index = 0; index < num_rows_; ++index) {
    const auto behind = static_cast<std::size_t>(first_ + index * stride_bytes_ + row_bytes_);
    if (const auto at = first_broken(all.subspan(behind, static_cast<std::size_t>(gap)))) {
      return "byte " + std::to_string(*at) + " behind row " + std::to_string(index) +
             " was written";
    }
  }
  const auto end = static_cast<std::size_t>(first_ + num_rows_ * stride_bytes_);
  if (const auto at = first_broken(all.subspan(end))) {
    return "byte " + std::to_string(*at) + " behind the last row was written";
  }
  return "";
}

}  // namespace ep::test
