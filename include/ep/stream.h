// SPDX-License-Identifier: Apache-2.0
// An opaque stream: a cudaStream_t for CUDA groups, empty for host groups.
#pragma once

namespace ep {

/// On CUDA an operation is ordered on this stream as a kernel would be, and behind the group's
/// previous operation; a null handle is the legacy default stream. On the host an operation is
/// complete when it returns and `handle` must be null.
struct Stream {
  void* handle = nullptr;
};

}  // namespace ep
