// SPDX-License-Identifier: Apache-2.0
// Annotations of functions: which ones nvcc compiles for the device too, which stay apart.
#pragma once

#if defined(__CUDACC__)
#define EP_DEVICE __device__
#define EP_HOST_DEVICE __host__ __device__
#else
#define EP_DEVICE
#define EP_HOST_DEVICE
#endif

/// Not worth a copy in each caller.
#if defined(__CUDACC__)
#define EP_COLD __noinline__
#else
#define EP_COLD [[gnu::noinline, gnu::cold]]
#endif

/// In front of a loop: the device's code has no copies of its body. A GPU reads a kernel's code
/// from memory each time that others used its cache in between, so short code is fast code.
#if defined(__CUDA_ARCH__)
#define EP_NO_UNROLL _Pragma("unroll 1")
#else
#define EP_NO_UNROLL
#endif
