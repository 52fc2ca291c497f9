// SPDX-License-Identifier: Apache-2.0
// A GPU for the tensors of one rank of a test.
#pragma once

#include <ep/config.h>
#include <ep/stream.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace ep::test {

/// EP_TEST_BACKEND: "cuda", else host.
Backend test_backend();

/// One stream, and memory in its order: nothing here waits for other streams, so that a rank may
/// call while the kernels of another one spin. A failure ends the process.
class Device {
 public:
  /// GPUs that a process sees; 0 also in a build without CUDA. Asked in a child process: one that
  /// has used CUDA can no longer fork ranks.
  static int count();
  /// Whether this process has opened one.
  static bool is_any_open();
  /// Makes it current in the calling thread.
  static std::unique_ptr<Device> open(int index);

  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  virtual Stream stream() const = 0;
  virtual std::byte* allocate(std::int64_t bytes) = 0;
  virtual void release(std::byte* memory) = 0;
  virtual void upload(std::byte* dst, std::span<const std::byte> src) = 0;
  virtual void download(std::span<std::byte> dst, const std::byte* src) = 0;
  virtual void wait() = 0;
};

}  // namespace ep::test
