// SPDX-License-Identifier: Apache-2.0
// What tests of arenas on GPUs do with memory of a device, for sources that see no CUDA header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace ep::test {

/// That this process sees; 0 also where there is no driver. Makes the driver unusable in later
/// forks of this process.
int count_gpus();

/// Makes the device's context, and keeps what the runtime allocates when first used out of later
/// measurements.
void warm_up_gpu(int device);

// By the copy engine, on a stream of `device`, which has access to the address.
void write_number(int device, std::byte* address, std::uint64_t number);
std::uint64_t read_number(int device, const std::byte* address);
/// Whether `bytes` bytes are 0.
bool is_zeroed(int device, const std::byte* address, std::int64_t bytes);

std::int64_t free_gpu_bytes(int device);

/// By a kernel on `device`, which looks its target up in `table`, std::byte* [...].
void store_through_table(
    int device, const void* table, std::int64_t index, std::int64_t offset, std::uint64_t number);

/// By a kernel on `device`: whether a flag is set within `limit_ns`.
bool await_flag_on_gpu(int device, const void* flags, int index, std::uint64_t limit_ns);

/// A kernel of one warp that runs from start() until this is destroyed, on a stream of its own. The
/// rest, which might wait for other kernels, is in the constructor and the destructor.
class BusyGpu {
 public:
  explicit BusyGpu(int device);
  ~BusyGpu();
  BusyGpu(const BusyGpu&) = delete;
  BusyGpu& operator=(const BusyGpu&) = delete;

  void start();
  bool is_running() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace ep::test
