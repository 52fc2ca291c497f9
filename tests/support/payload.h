// SPDX-License-Identifier: Apache-2.0
// Payload that says where it came from, poison for outputs, and guarded memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ep::test {

/// Every 16 bytes of a coded row carry (source rank, token, block, call).
struct PayloadId {
  int src_rank = 0;
  std::int64_t token = 0;
  std::uint32_t call = 0;
};

inline constexpr std::int64_t kBlockBytes = 16;

/// Finalizer of a 64-bit hash: every input bit moves every output bit.
std::uint64_t mix64(std::uint64_t value);

/// Precondition: row.size() is a multiple of kBlockBytes.
void fill_row(std::span<std::byte> row, const PayloadId& id);
/// What is wrong with a received row, empty if it is the row of `id`: names the block, and what
/// lies there instead.
std::string row_mismatch(std::span<const std::byte> row, const PayloadId& id);

/// The same for scales, whose rows have any length: byte i depends on the id and i.
void fill_scales(std::span<std::byte> row, const PayloadId& id);
std::string scales_mismatch(std::span<const std::byte> row, const PayloadId& id);

/// Outputs are filled with one of these before a call. 0x7F7F... is a large finite number in every
/// type, 0xFFFF... a NaN.
enum class Poison : std::uint8_t { kLarge = 0x7F, kNan = 0xFF };
void poison(std::span<std::byte> bytes, Poison pattern);

/// Bytes around memory that somebody else may write to.
inline constexpr std::uint8_t kCanary = 0xC5;
void fill_canary(std::span<std::byte> bytes);
/// Position of the first byte that is not the canary any more.
std::optional<std::int64_t> first_broken(std::span<const std::byte> bytes);

/// Rows at a stride, with canaries before the first, between all and behind the last one; poisoned
/// inside.
class GuardedRows {
 public:
  /// Precondition: stride_bytes >= row_bytes; both multiples of 16.
  GuardedRows(std::int64_t num_rows, std::int64_t row_bytes, std::int64_t stride_bytes);

  /// 64-byte aligned.
  std::byte* data() { return storage_.data() + first_; }
  std::span<std::byte> row(std::int64_t index);
  std::span<const std::byte> row(std::int64_t index) const;
  std::int64_t stride_bytes() const { return stride_bytes_; }
  /// Empty if every canary is alive, else where it died.
  std::string broken_canary() const;

 private:
  std::int64_t num_rows_;
  std::int64_t row_bytes_;
  std::int64_t stride_bytes_;
  std::int64_t first_ = 0;
  std::vector<std::byte> storage_;
};

}  // namespace ep::test
