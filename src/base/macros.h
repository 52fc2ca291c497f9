// SPDX-License-Identifier: Apache-2.0
// Annotations of functions that nvcc compiles for the device too; empty under every other compiler.
#pragma once

#if defined(__CUDACC__)
#define EP_DEVICE __device__
#define EP_HOST_DEVICE __host__ __device__
#else
#define EP_DEVICE
#define EP_HOST_DEVICE
#endif
