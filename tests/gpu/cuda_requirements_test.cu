// SPDX-License-Identifier: Apache-2.0
// What an arena on a GPU needs of driver and device, and how failures of CUDA read. Needs no GPU.
#include "fabric/cuda/device.h"
#include "fabric/cuda/driver.h"
#include "fabric/cuda/status.h"

#include <gtest/gtest.h>

namespace ep::fabric {
namespace {

TEST(CudaRequirements, ADriverThatIsMissingOrOldIsUnsupportedWithTheNumbers) {
  EXPECT_TRUE(check_driver_version(12080, 12080).ok());
  EXPECT_TRUE(check_driver_version(12080, 12090).ok()) << "same major version";
  EXPECT_TRUE(check_driver_version(13010, 13000).ok());
  const Status missing = check_driver_version(0, 13000);
  EXPECT_EQ(missing.code(), Errc::kUnsupported);
  EXPECT_EQ(missing.message(), "no CUDA driver on this host");
  const Status old = check_driver_version(12040, 12080);
  EXPECT_EQ(old.code(), Errc::kUnsupported);
  EXPECT_EQ(old.message(), "CUDA driver for CUDA 12.4, expected at least 12.8");
  EXPECT_EQ(check_driver_version(12090, 13000).message(),
            "CUDA driver for CUDA 12.9, expected at least 13.0");
}

TEST(CudaRequirements, ADeviceBelowSm80IsUnsupportedWithTheNumbers) {
  EXPECT_TRUE(check_compute_capability(0, 8, 0).ok());
  EXPECT_TRUE(check_compute_capability(0, 10, 0).ok());
  const Status status = check_compute_capability(3, 7, 5);
  EXPECT_EQ(status.code(), Errc::kUnsupported);
  EXPECT_EQ(status.message(), "device 3 has compute capability 7.5, expected at least 8.0");
}

TEST(CudaStatus, CarriesCallTextAndNumber) {
  EXPECT_TRUE(cuda_status(cudaSuccess, "call").ok());
  EXPECT_TRUE(cu_status(CUDA_SUCCESS, "call").ok());
  const Status invalid = cuda_status(cudaErrorInvalidValue, "cudaMemcpy");
  EXPECT_EQ(invalid.code(), Errc::kCuda);
  EXPECT_EQ(invalid.native_code(), cudaErrorInvalidValue);
  EXPECT_EQ(invalid.message(), "cudaMemcpy: invalid argument (cudaError 1)");
  const Status full = cu_status(CUDA_ERROR_OUT_OF_MEMORY, "cuMemCreate");
  EXPECT_EQ(full.code(), Errc::kOutOfMemory);
  EXPECT_EQ(full.message(), "cuMemCreate: out of memory (CUresult 2)");
}

}  // namespace
}  // namespace ep::fabric
