// SPDX-License-Identifier: Apache-2.0
// One exchange of bytes over a communicator of NCCL that ends by a deadline, whatever NCCL does.
#pragma once

#include "base/deadline.h"
#include "fabric/bootstrap/nccl_buffers.h"
#include "fabric/bootstrap/nccl_library.h"

#include <ep/bootstrap.h>
#include <ep/status.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace ep::fabric {

/// A communicator, not owned, and what its exchanges use. A thread that NCCL does not let go shares
/// it with the bootstrap, and outlives that.
struct NcclLink {
  NcclLibrary library;
  ncclComm* comm = nullptr;
  int rank = 0;
  int num_ranks = 0;
  std::unique_ptr<NcclBuffers> buffers{};
  /// Set by who gave up waiting: the communicator may be gone, no call may follow.
  std::atomic<bool> is_abandoned{false};
  /// Of an all-gather whose end nobody has seen: the device may still use the buffers.
  std::atomic<bool> has_pending{false};
};

/// Waits while the communicator is busy with what it does by itself, as with its creation where it
/// is non-blocking. Errors: kNccl; kPeerTimeout.
Status await_comm(const NcclLibrary& library, ncclComm* comm, std::chrono::milliseconds timeout);

/// Bootstrap::all_gather; `sequence` must be equal on all ranks. The communicator is used by a
/// thread of our own: a call that does not return is left behind with it.
Result<std::vector<Bootstrap::Bytes>> exchange_over_nccl(const std::shared_ptr<NcclLink>& link,
                                                         std::span<const std::byte> mine,
                                                         std::uint64_t sequence,
                                                         std::chrono::milliseconds timeout);

}  // namespace ep::fabric
