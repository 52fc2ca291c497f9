// SPDX-License-Identifier: Apache-2.0
// Streams, graphs and a hog of SMs for tests of operations.
#include "base/check.h"
#include "primitives/memory.cuh"
#include "primitives/ptx.cuh"
#include "tests/gpu/gpu_streams.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <thread>

namespace ep::test {
namespace {

using primitives::CudaMemory;

constexpr int kHogThreads = 1024;
constexpr unsigned kHogNapNs = 1000;
constexpr int kMaxSms = 1024;

void must(cudaError_t error) { EP_CHECK(error == cudaSuccess, cudaGetErrorString(error)); }

cudaStream_t stream_of(const GpuStream& stream) {
  return static_cast<cudaStream_t>(stream.get().handle);
}

/// In pinned memory.
struct HogWords {
  std::uint32_t is_released = 0;
  std::uint32_t has_expired = 0;
  std::uint32_t is_resident[kMaxSms] = {};
};

__global__ void __launch_bounds__(kHogThreads, 1)
    hog_kernel(HogWords* words, std::uint64_t limit_ns) {
  if (threadIdx.x == 0) {
    CudaMemory::store_relaxed_sys(&words->is_resident[blockIdx.x], 1U);
    const std::uint64_t begin = primitives::global_timer_ns();
    while (CudaMemory::load_relaxed_sys(&words->is_released) == 0) {
      __nanosleep(kHogNapNs);
      if (primitives::global_timer_ns() - begin <= limit_ns) continue;
      CudaMemory::store_relaxed_sys(&words->has_expired, 1U);
      break;
    }
  }
  __syncthreads();
}

int device_attribute(cudaDeviceAttr attribute) {
  int device = 0;
  int value = 0;
  must(cudaGetDevice(&device));
  must(cudaDeviceGetAttribute(&value, attribute, device));
  return value;
}

}  // namespace

GpuStream::GpuStream() {
  cudaStream_t stream = nullptr;
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  handle_ = stream;
}

GpuStream::~GpuStream() { must(cudaStreamDestroy(static_cast<cudaStream_t>(handle_))); }

void GpuStream::wait() const { must(cudaStreamSynchronize(static_cast<cudaStream_t>(handle_))); }

GpuGraph::GpuGraph(const GpuStream& stream, const std::function<void()>& calls) {
  must(cudaStreamBeginCapture(stream_of(stream), cudaStreamCaptureModeThreadLocal));
  calls();
  cudaGraph_t graph = nullptr;
  must(cudaStreamEndCapture(stream_of(stream), &graph));
  handle_ = graph;
}

GpuGraph::~GpuGraph() { must(cudaGraphDestroy(static_cast<cudaGraph_t>(handle_))); }

GpuGraph::Instance::Instance(const GpuGraph& graph) {
  cudaGraphExec_t instance = nullptr;
  must(cudaGraphInstantiate(&instance, static_cast<cudaGraph_t>(graph.handle_), 0));
  handle_ = instance;
}

GpuGraph::Instance::~Instance() {
  must(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(handle_)));
}

void GpuGraph::Instance::launch(const GpuStream& stream) const {
  must(cudaGraphLaunch(static_cast<cudaGraphExec_t>(handle_), stream_of(stream)));
}

struct SmHog::State {
  GpuStream stream;
  std::chrono::milliseconds deadline{};
  int num_ctas = 0;
  int shared_bytes = 0;
  HogWords* words = nullptr;
};

SmHog::SmHog(std::chrono::milliseconds deadline) : state_(std::make_unique<State>()) {
  state_->deadline = deadline;
  state_->num_ctas = std::min(device_attribute(cudaDevAttrMultiProcessorCount) - 1, kMaxSms);
  state_->shared_bytes = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  must(cudaFuncSetAttribute(hog_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                            state_->shared_bytes));
  void* memory = nullptr;
  must(cudaHostAlloc(&memory, sizeof(HogWords), cudaHostAllocPortable | cudaHostAllocMapped));
  state_->words = new (memory) HogWords();
}

bool SmHog::start() {
  using Clock = std::chrono::steady_clock;
  const std::chrono::nanoseconds limit = state_->deadline;
  hog_kernel<<<static_cast<unsigned>(state_->num_ctas), kHogThreads,
               static_cast<std::size_t>(state_->shared_bytes),
               static_cast<cudaStream_t>(state_->stream.get().handle)>>>(
      state_->words, static_cast<std::uint64_t>(limit.count()));
  must(cudaGetLastError());
  const Clock::time_point end = Clock::now() + state_->deadline;
  int num_resident = 0;
  while (num_resident < state_->num_ctas && Clock::now() < end) {
    while (num_resident < state_->num_ctas &&
           __atomic_load_n(&state_->words->is_resident[num_resident], __ATOMIC_RELAXED) != 0) {
      ++num_resident;
    }
    std::this_thread::yield();
  }
  return num_resident == state_->num_ctas;
}

bool SmHog::has_expired() const {
  return __atomic_load_n(&state_->words->has_expired, __ATOMIC_RELAXED) != 0;
}

SmHog::~SmHog() {
  __atomic_store_n(&state_->words->is_released, 1U, __ATOMIC_RELAXED);
  state_->stream.wait();
  // Freeing it would wait for the device, and kernels there may wait for this thread: the words of
  // a test's few hogs stay.
}

}  // namespace ep::test
