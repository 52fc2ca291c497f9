// SPDX-License-Identifier: Apache-2.0
// Asks the CUDA runtime for GPUs, and the kernel module for its version.
#include "base/check.h"
#include "bench/gpu_info.h"
#include "bench/gpu_status.cuh"

#include <cuda_runtime.h>

#include <fstream>
#include <sstream>

namespace ep::bench {
namespace {

constexpr double kKiloPerMega = 1000;

/// 13000 is "13.0".
std::string version_text(int version) {
  constexpr int kMajor = 1000;
  constexpr int kMinor = 10;
  return std::to_string(version / kMajor) + "." + std::to_string(version % kMajor / kMinor);
}

/// "580.65.06, " out of "NVRM version: NVIDIA UNIX ... Module  580.65.06  ..."; empty elsewhere.
std::string module_version() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    const bool is_number = word.find_first_not_of("0123456789.") == std::string::npos;
    if (is_number && word.find('.') != std::string::npos) return word + ", ";
  }
  return {};
}

Result<GpuInfo> read_gpu(int gpu) {
  cudaDeviceProp properties{};
  EP_BENCH_CUDA(cudaGetDeviceProperties(&properties, gpu));
  int clock_khz = 0;
  int memory_clock_khz = 0;
  EP_BENCH_CUDA(cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, gpu));
  EP_BENCH_CUDA(cudaDeviceGetAttribute(&memory_clock_khz, cudaDevAttrMemoryClockRate, gpu));
  GpuInfo info;
  info.name = properties.name;
  info.num_sms = properties.multiProcessorCount;
  info.compute_capability = properties.major * 10 + properties.minor;
  info.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  info.cache_bytes = properties.l2CacheSize;
  info.clock_mhz = clock_khz / kKiloPerMega;
  info.memory_clock_mhz = memory_clock_khz / kKiloPerMega;
  return info;
}

}  // namespace

bool has_cuda() { return true; }

Result<GpuMachine> read_gpus() {
  int num_gpus = 0;
  EP_BENCH_CUDA(cudaGetDeviceCount(&num_gpus));
  int driver = 0;
  int runtime = 0;
  EP_BENCH_CUDA(cudaDriverGetVersion(&driver));
  EP_BENCH_CUDA(cudaRuntimeGetVersion(&runtime));
  GpuMachine machine;
  machine.driver = module_version() + "CUDA " + version_text(driver);
  machine.runtime = version_text(runtime);
  for (int gpu = 0; gpu < num_gpus; ++gpu) {
    EP_TRY_ASSIGN(GpuInfo info, read_gpu(gpu));
    machine.gpus.push_back(info);
    std::vector<bool> reaches;
    for (int peer = 0; peer < num_gpus; ++peer) {
      int can = 1;
      if (peer != gpu) EP_BENCH_CUDA(cudaDeviceCanAccessPeer(&can, gpu, peer));
      reaches.push_back(can != 0);
    }
    machine.reaches.push_back(reaches);
  }
  return machine;
}

}  // namespace ep::bench
