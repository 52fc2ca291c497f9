// SPDX-License-Identifier: Apache-2.0
// Copies, kernels and counters for tests of arenas on GPUs.
#include "base/check.h"
#include "primitives/memory.cuh"
#include "primitives/ptx.cuh"
#include "tests/gpu/device_memory.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <vector>

namespace ep::test {
namespace {

using primitives::CudaMemory;
using primitives::global_timer_ns;

/// A test that fails must not hang: a kernel lets itself go.
constexpr std::uint64_t kMaxBusyNs = 20'000'000'000;

void must(cudaError_t error) { EP_CHECK(error == cudaSuccess, cudaGetErrorString(error)); }

__global__ void store_kernel(std::byte* const* table,
                             std::int64_t index,
                             std::int64_t offset,
                             std::uint64_t number) {
  auto* const target = reinterpret_cast<std::uint64_t*>(table[index] + offset);
  CudaMemory::store_release_sys(target, number);
}

__global__ void await_kernel(const std::uint32_t* flag, std::uint64_t limit_ns, int* is_set) {
  const std::uint64_t begin = global_timer_ns();
  while (CudaMemory::load_acquire_sys(flag) == 0) {
    if (global_timer_ns() - begin > limit_ns) return;
  }
  *is_set = 1;
}

/// Pinned memory for one value, of this test only.
template <class T>
class PinnedValue {
 public:
  PinnedValue() {
    void* memory = nullptr;
    must(cudaHostAlloc(&memory, sizeof(T), cudaHostAllocPortable | cudaHostAllocMapped));
    value_ = new (memory) T();
  }
  ~PinnedValue() { must(cudaFreeHost(value_)); }
  PinnedValue(const PinnedValue&) = delete;
  PinnedValue& operator=(const PinnedValue&) = delete;

  T* get() const { return value_; }

 private:
  T* value_;
};

/// Waits for its own work only: others may be waiting for this thread.
class Stream {
 public:
  Stream() { must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() { must(cudaStreamDestroy(stream_)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  cudaStream_t get() const { return stream_; }
  void wait() const { must(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

void copy(int device, void* dst, const void* src, std::size_t bytes) {
  must(cudaSetDevice(device));
  const Stream stream;
  must(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream.get()));
  stream.wait();
}

}  // namespace

int count_gpus() {
  int num_gpus = 0;
  if (cudaGetDeviceCount(&num_gpus) != cudaSuccess) return 0;
  return num_gpus;
}

void warm_up_gpu(int device) {
  must(cudaSetDevice(device));
  const Stream stream;
  const PinnedValue<int> is_set;
  const PinnedValue<std::uint32_t> flag;
  *flag.get() = 1;
  await_kernel<<<1, 1, 0, stream.get()>>>(flag.get(), kMaxBusyNs, is_set.get());
  must(cudaGetLastError());
  stream.wait();
}

void write_number(int device, std::byte* address, std::uint64_t number) {
  copy(device, address, &number, sizeof(number));
}

std::uint64_t read_number(int device, const std::byte* address) {
  std::uint64_t number = 0;
  copy(device, &number, address, sizeof(number));
  return number;
}

bool is_zeroed(int device, const std::byte* address, std::int64_t bytes) {
  std::vector<std::byte> image(static_cast<std::size_t>(bytes), std::byte{1});
  copy(device, image.data(), address, image.size());
  return std::all_of(image.begin(), image.end(), [](std::byte b) { return b == std::byte{0}; });
}

std::int64_t free_gpu_bytes(int device) {
  must(cudaSetDevice(device));
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  must(cudaMemGetInfo(&free_bytes, &total_bytes));
  return static_cast<std::int64_t>(free_bytes);
}

void store_through_table(
    int device, const void* table, std::int64_t index, std::int64_t offset, std::uint64_t number) {
  must(cudaSetDevice(device));
  const Stream stream;
  store_kernel<<<1, 1, 0, stream.get()>>>(static_cast<std::byte* const*>(table), index, offset,
                                          number);
  must(cudaGetLastError());
  stream.wait();
}

bool await_flag_on_gpu(int device, const void* flags, int index, std::uint64_t limit_ns) {
  must(cudaSetDevice(device));
  const Stream stream;
  const PinnedValue<int> is_set;
  await_kernel<<<1, 1, 0, stream.get()>>>(static_cast<const std::uint32_t*>(flags) + index,
                                          limit_ns, is_set.get());
  must(cudaGetLastError());
  stream.wait();
  return *is_set.get() != 0;
}

struct BusyGpu::State {
  Stream stream;
  PinnedValue<std::uint32_t> is_released;
  PinnedValue<int> was_released;
};

BusyGpu::BusyGpu(int device) : state_((must(cudaSetDevice(device)), std::make_unique<State>())) {}

void BusyGpu::start() {
  await_kernel<<<1, 32, 0, state_->stream.get()>>>(state_->is_released.get(), kMaxBusyNs,
                                                   state_->was_released.get());
  must(cudaGetLastError());
}

BusyGpu::~BusyGpu() {
  __atomic_store_n(state_->is_released.get(), 1U, __ATOMIC_RELEASE);
  state_->stream.wait();
}

bool BusyGpu::is_running() const {
  return cudaStreamQuery(state_->stream.get()) == cudaErrorNotReady;
}

}  // namespace ep::test
