// SPDX-License-Identifier: Apache-2.0
// Host time of each call of CUDA that an operation makes or might make: median and p90 in ns, alone
// and right after other memory traffic. Needs a GPU; docs/tuning.md says what for.
#include "base/check.h"
#include "fabric/cuda/driver.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <vector>

namespace ep::bench {
namespace {

constexpr int kRounds = 400;
constexpr std::size_t kOtherBytes = std::size_t{96} << 20;
constexpr std::size_t kLine = 64;

void must(cudaError_t error) { EP_CHECK(error == cudaSuccess, cudaGetErrorString(error)); }

template <int kBytes>
struct Params {
  std::byte bytes[kBytes] = {};
};

template <int kBytes>
__global__ void idle_kernel(const __grid_constant__ Params<kBytes> params, int* out) {
  if (out != nullptr) *out = static_cast<int>(params.bytes[threadIdx.x % kBytes]);
}

template <int kBytes>
void launch(cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(16);
  config.blockDim = dim3(32);
  config.stream = stream;
  int* const nowhere = nullptr;
  must(cudaLaunchKernelEx(&config, idle_kernel<kBytes>, Params<kBytes>{}, nowhere));
}

class CallTimer {
 public:
  explicit CallTimer(cudaStream_t stream) : stream_(stream) {}

  void time(const char* name, const std::function<void()>& call) {
    std::printf("%-44s", name);
    for (const bool is_cold : {false, true}) {
      std::vector<double> times = measure(call, is_cold);
      std::sort(times.begin(), times.end());
      std::printf("  %s %7.0f %7.0f", is_cold ? "cold" : "warm", times[times.size() / 2],
                  times[times.size() * 9 / 10]);
    }
    std::printf("\n");
  }

 private:
  std::vector<double> measure(const std::function<void()>& call, bool is_cold) {
    std::vector<double> times;
    for (int round = 0; round < kRounds; ++round) {
      for (std::size_t at = 0; is_cold && at < other_.size(); at += kLine) other_[at] += 1;
      const auto start = std::chrono::steady_clock::now();
      call();
      times.push_back(
          std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start)
              .count());
      must(cudaStreamSynchronize(stream_));
    }
    return times;
  }

  cudaStream_t stream_;
  std::vector<std::uint8_t> other_ = std::vector<std::uint8_t>(kOtherBytes);
};

void time_questions(CallTimer& timer, cudaStream_t stream, const fabric::Driver& driver) {
  int device = 0;
  timer.time("cudaGetDevice", [&] { must(cudaGetDevice(&device)); });
  timer.time("cudaStreamGetCaptureInfo", [&] {
    cudaStreamCaptureStatus status{};
    unsigned long long id = 0;
    must(cudaStreamGetCaptureInfo(stream, &status, &id));
  });
  timer.time("cudaStreamGetDevice", [&] { must(cudaStreamGetDevice(stream, &device)); });
  unsigned long long id = 0;
  timer.time("cudaStreamGetId", [&] { must(cudaStreamGetId(stream, &id)); });
  void* memory = nullptr;
  must(cudaMalloc(&memory, std::size_t{64} << 20));
  timer.time("cudaPointerGetAttributes", [&] {
    cudaPointerAttributes attributes{};
    must(cudaPointerGetAttributes(&attributes, memory));
  });
  timer.time("cuPointerGetAttribute(BUFFER_ID)", [&] {
    EP_CHECK(driver.pointer_get_attribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                          reinterpret_cast<std::uintptr_t>(memory)) ==
             CUDA_SUCCESS);
  });
  must(cudaFree(memory));
}

void time_work(CallTimer& timer, cudaStream_t stream) {
  cudaEvent_t event = nullptr;
  must(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  timer.time("cudaEventRecord", [&] { must(cudaEventRecord(event, stream)); });
  timer.time("cudaStreamWaitEvent", [&] { must(cudaStreamWaitEvent(stream, event)); });
  timer.time("cudaLaunchKernelEx, 64 bytes", [&] { launch<64>(stream); });
  timer.time("cudaLaunchKernelEx, 512 bytes", [&] { launch<512>(stream); });
  timer.time("cudaLaunchKernelEx, 1,216 bytes", [&] { launch<1216>(stream); });
  timer.time("cudaLaunchKernelEx, 3,072 bytes", [&] { launch<3072>(stream); });
  timer.time("cudaLaunchKernelEx, 1,216 bytes, and event", [&] {
    launch<1216>(stream);
    must(cudaEventRecord(event, stream));
  });
  must(cudaEventDestroy(event));
}

int run() {
  int num_gpus = 0;
  if (cudaGetDeviceCount(&num_gpus) != cudaSuccess || num_gpus == 0) {
    std::printf("needs a GPU\n");
    return 0;
  }
  const auto driver = fabric::load_driver();
  EP_CHECK(driver.ok(), driver.status().message().c_str());
  cudaStream_t stream = nullptr;
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::printf("ns: median, p90\n");
  CallTimer timer(stream);
  time_questions(timer, stream, **driver);
  time_work(timer, stream);
  must(cudaStreamDestroy(stream));
  return 0;
}

}  // namespace
}  // namespace ep::bench

int main() { return ep::bench::run(); }
