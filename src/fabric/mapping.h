// SPDX-License-Identifier: Apache-2.0
// A segment as it is mapped into this process, whatever kind of memory it is.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ep::fabric {

/// Unmapped on destruction.
class Mapping {
 public:
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  virtual ~Mapping() = default;

  std::byte* base() const { return base_; }
  std::int64_t bytes() const { return bytes_; }
  /// Whether all `bytes` bytes from `address` lie in it.
  bool contains(const void* address, std::int64_t bytes) const;

 protected:
  Mapping(std::byte* base, std::int64_t bytes) : base_(base), bytes_(bytes) {}

 private:
  std::byte* const base_;
  const std::int64_t bytes_;
};

}  // namespace ep::fabric
