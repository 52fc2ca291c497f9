// SPDX-License-Identifier: Apache-2.0
// The GPUs that the figures come from.
#pragma once

#include <ep/status.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ep::bench {

struct GpuInfo {
  std::string name;
  int num_sms = 0;
  int compute_capability = 0;  ///< 90 is 9.0
  std::int64_t memory_bytes = 0;
  std::int64_t cache_bytes = 0;  ///< L2
  double clock_mhz = 0;          ///< highest of the SMs
  double memory_clock_mhz = 0;
};

struct GpuMachine {
  std::vector<GpuInfo> gpus;
  std::string driver;   ///< "580.65.06, CUDA 13.0"
  std::string runtime;  ///< "13.0"
  /// reaches[a][b]: GPU a can load from and store to memory of GPU b.
  std::vector<std::vector<bool>> reaches;

  int num_gpus() const { return static_cast<int>(gpus.size()); }
};

/// True if this build has the CUDA backend. Asks no driver.
bool has_cuda();

/// Asks the driver: never before a fork, whose children could not use CUDA then. Errors:
/// kUnsupported without CUDA in the build, without a driver and without a GPU; kCuda.
Result<GpuMachine> read_gpus();

/// Ranks take the GPUs in turn.
inline int gpu_of_rank(int rank, int num_gpus) { return rank % num_gpus; }

}  // namespace ep::bench
