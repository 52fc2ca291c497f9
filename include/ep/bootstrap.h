// SPDX-License-Identifier: Apache-2.0
// How ranks find each other before they share memory: rank, size, all_gather, barrier.
#pragma once

#include <ep/api.h>
#include <ep/status.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

/// What ncclComm_t of nccl.h points to.
struct ncclComm;

namespace ep {

class EP_API Bootstrap {
 public:
  using Bytes = std::vector<std::byte>;

  Bootstrap() = default;
  Bootstrap(const Bootstrap&) = delete;
  Bootstrap& operator=(const Bootstrap&) = delete;
  virtual ~Bootstrap() = default;

  virtual int rank() const = 0;
  virtual int num_ranks() const = 0;

  /// Collective: every rank contributes its bytes (any length up to 64 MiB, also 0) and receives
  /// all contributions in rank order. Errors: kPeerTimeout naming the rank that did not come within
  /// `timeout`, died or left; kInvalidArgument for too many bytes; kFabric for a broken connection.
  /// The first error ends every later call, on all ranks.
  virtual Result<std::vector<Bytes>> all_gather(std::span<const std::byte> mine,
                                                std::chrono::milliseconds timeout) = 0;

  /// Collective: returns once every rank has called it. Errors as all_gather.
  Status barrier(std::chrono::milliseconds timeout);
};

/// One bootstrap per rank for ranks that are threads of this process. Element i belongs to rank i
/// and may be used from any one thread at a time.
EP_API Result<std::vector<std::unique_ptr<Bootstrap>>> make_in_process_bootstraps(int num_ranks);

/// Fields left empty are read from the environment:
/// rank and size from RANK/WORLD_SIZE (torchrun), OMPI_COMM_WORLD_RANK/SIZE (Open MPI) or
/// SLURM_PROCID/SLURM_NTASKS; the address from EP_MASTER_ADDR/EP_MASTER_PORT; else under torchrun
/// from MASTER_ADDR with a port of its own; else, when all ranks are on one host, an abstract Unix
/// socket named by uid and job id.
struct TcpBootstrapConfig {
  std::optional<int> rank{};
  std::optional<int> num_ranks{};
  std::optional<std::string> address{};  ///< host name or IP of rank 0
  std::optional<int> port{};             ///< TCP port on which rank 0 listens
  std::optional<std::string> job_id{};   ///< tells jobs apart that meet on one port
  std::optional<std::string> cookie{};   ///< EP_COOKIE: shared secret, required across hosts
  std::chrono::milliseconds timeout{10'000};
};

/// Collective over all ranks: rank 0 listens, the others connect; returns when all have said hello.
/// Errors: kInvalidArgument for a rank, size, port or cookie that is missing or malformed (with its
/// value), kFabric for a port in use, kPeerTimeout naming the ranks that did not come,
/// kInvalidArgument naming two ranks with the same number or different world sizes.
EP_API Result<std::unique_ptr<Bootstrap>> make_tcp_bootstrap(const TcpBootstrapConfig& config = {});

struct NcclBootstrapConfig {
  /// By when the communicator must be ready, and all ranks must have come.
  std::chrono::milliseconds timeout{10'000};
  /// File of the NCCL that made the communicator. Empty: the libnccl.so.2 that this process has
  /// loaded, as that of torch, else what its global scope has.
  std::optional<std::string> library{};
};

/// Collective over all ranks of an ncclComm_t, with their ranks. NCCL 2.19 or later is called in
/// the library that made the communicator; ep links none. The communicator is not owned and never
/// aborted; only this call and those of the bootstrap use it, each on a stream of the bootstrap's
/// own, behind what was queued on the communicator before: until such a call has returned, nobody
/// else may use it. It must live as long as the bootstrap is used.
///
/// NCCL does not say which rank is late: kPeerTimeout names none. After it, or kNccl, the bootstrap
/// has failed and the communicator may be stuck, as a call of NCCL that does not return or a kernel
/// that does not end; then ncclCommAbort() is the caller's to call.
/// Errors: kInvalidArgument for no communicator; kUnsupported for no NCCL, one that is too old, a
/// build without CUDA, and as a CUDA group; kNccl with NCCL's words; kFabric where what arrives is
/// nothing of ep; kOutOfMemory, kCuda, kPeerTimeout.
EP_API Result<std::unique_ptr<Bootstrap>> make_nccl_bootstrap(
    ncclComm* comm, const NcclBootstrapConfig& config = {});

}  // namespace ep
