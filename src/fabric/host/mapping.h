// SPDX-License-Identifier: Apache-2.0
// Anonymous shared memory: a memfd and its mapping.
#pragma once

#include "base/unique_fd.h"

#include <ep/status.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace ep::fabric {

/// A mapped memfd; unmapped on destruction.
class Mapping {
 public:
  /// `fd` is not kept. Errors: kOutOfMemory, kFabric.
  static Result<std::shared_ptr<Mapping>> create(int fd, std::int64_t bytes);

  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  std::byte* base() const { return base_; }
  std::int64_t bytes() const { return bytes_; }
  /// Whether all `bytes` bytes from `address` lie in it.
  bool contains(const void* address, std::int64_t bytes) const;

 private:
  Mapping(std::byte* base, std::int64_t bytes) : base_(base), bytes_(bytes) {}

  std::byte* const base_;
  const std::int64_t bytes_;
};

/// A zeroed memfd of that size which can neither shrink nor grow, so that no holder can make
/// another fault. Errors: kOutOfMemory where this machine has not that much, or a limit of the
/// process forbids it; kFabric.
Result<base::UniqueFd> create_memory(std::int64_t bytes);

/// Whether a descriptor that came from a peer is such a memfd of that size. Errors: kFabric.
Status check_memory(int fd, std::int64_t bytes);

/// RAM and swap of this machine.
std::int64_t machine_memory_bytes();

}  // namespace ep::fabric
