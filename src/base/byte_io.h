// SPDX-License-Identifier: Apache-2.0
// Little-endian writing and bounds-checked reading of small messages.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace ep::base {

class ByteWriter {
 public:
  template <std::integral Number>
  ByteWriter& put(Number value) {
    using Bits = std::make_unsigned_t<Number>;
    const Bits bits = static_cast<Bits>(value);
    for (std::size_t i = 0; i < sizeof(Bits); ++i) {
      bytes_.push_back(static_cast<std::byte>((bits >> (8 * i)) & 0xff));
    }
    return *this;
  }

  ByteWriter& put_bytes(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }

  /// Length (32 bits), then the characters.
  ByteWriter& put_text(std::string_view text) {
    put(static_cast<std::uint32_t>(text.size()));
    return put_bytes(std::as_bytes(std::span(text)));
  }

  std::span<const std::byte> bytes() const { return bytes_; }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

/// Reading past the end fails the reader for good and yields zeros and empty texts: check
/// is_complete() once, after the last field.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <std::integral Number>
  Number get() {
    using Bits = std::make_unsigned_t<Number>;
    const std::span<const std::byte> bytes = get_bytes(sizeof(Bits));
    Bits bits = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bits = static_cast<Bits>(bits | (static_cast<Bits>(bytes[i]) << (8 * i)));
    }
    return static_cast<Number>(bits);
  }

  /// Valid as long as the bytes that are read. Empty on failure.
  std::span<const std::byte> get_bytes(std::size_t count) {
    if (has_failed_ || count > rest_.size()) {
      has_failed_ = true;
      return {};
    }
    const std::span<const std::byte> head = rest_.first(count);
    rest_ = rest_.subspan(count);
    return head;
  }

  /// A text longer than `max_bytes` fails the reader.
  std::string get_text(std::size_t max_bytes) {
    const std::uint32_t size = get<std::uint32_t>();
    if (size > max_bytes) has_failed_ = true;
    const std::span<const std::byte> bytes = get_bytes(size);
    std::string text(bytes.size(), '\0');
    if (!bytes.empty()) std::memcpy(text.data(), bytes.data(), bytes.size());
    return text;
  }

  std::size_t num_left() const { return rest_.size(); }
  bool has_failed() const { return has_failed_; }
  /// Every field was there and nothing follows.
  bool is_complete() const { return !has_failed_ && rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
  bool has_failed_ = false;
};

}  // namespace ep::base
