// SPDX-License-Identifier: Apache-2.0
// A GPU for the tensors of one rank of a test.
#include "base/check.h"
#include "tests/support/device.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <sys/wait.h>
#include <unistd.h>

namespace ep::test {
namespace {

void must(cudaError_t error) { EP_CHECK(error == cudaSuccess, cudaGetErrorString(error)); }

std::atomic<bool>& is_open() {
  static std::atomic<bool> is_any{false};
  return is_any;
}

int count_in_child() {
  const pid_t child = fork();
  EP_CHECK(child >= 0, "fork");
  if (child == 0) {
    int count = 0;
    _exit(cudaGetDeviceCount(&count) == cudaSuccess ? count : 0);
  }
  int status = 0;
  EP_CHECK(waitpid(child, &status, 0) == child, "waitpid");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int index) {
    must(cudaSetDevice(index));
    must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    keep_pool(index);
    // The first allocation of a process sets the pool up, which no kernel may be waited for.
    release(allocate(1));
    wait();
  }
  ~CudaDevice() override { must(cudaStreamDestroy(stream_)); }

  Stream stream() const override { return {stream_}; }

  std::byte* allocate(std::int64_t bytes) override {
    void* memory = nullptr;
    const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
    must(cudaMallocAsync(&memory, size, stream_));
    return static_cast<std::byte*>(memory);
  }
  void release(std::byte* memory) override { must(cudaFreeAsync(memory, stream_)); }

  void upload(std::byte* dst, std::span<const std::byte> src) override {
    must(cudaMemcpyAsync(dst, src.data(), src.size(), cudaMemcpyHostToDevice, stream_));
    wait();
  }
  void download(std::span<std::byte> dst, const std::byte* src) override {
    must(cudaMemcpyAsync(dst.data(), src, dst.size(), cudaMemcpyDeviceToHost, stream_));
    wait();
  }
  void wait() override { must(cudaStreamSynchronize(stream_)); }

 private:
  /// Memory is never given back to the driver while ranks run.
  static void keep_pool(int index) {
    cudaMemPool_t pool = nullptr;
    must(cudaDeviceGetDefaultMemPool(&pool, index));
    std::uint64_t threshold = std::numeric_limits<std::uint64_t>::max();
    must(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  }

  cudaStream_t stream_ = nullptr;
};

}  // namespace

int Device::count() {
  static const int count = count_in_child();
  return count;
}

bool Device::is_any_open() { return is_open(); }

std::unique_ptr<Device> Device::open(int index) {
  is_open() = true;
  return std::make_unique<CudaDevice>(index);
}

}  // namespace ep::test
