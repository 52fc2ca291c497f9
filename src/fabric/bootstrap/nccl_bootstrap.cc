// SPDX-License-Identifier: Apache-2.0
// Ranks that have a communicator of NCCL meet over it.
#include "fabric/bootstrap/nccl_bootstrap.h"

#include "base/check.h"
#include "base/log.h"
#include "fabric/bootstrap/nccl_exchange.h"

#include <chrono>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace ep::fabric {
namespace {

/// The device may still write to the link's buffers, and nothing tells when it no longer does.
void keep_for_ever(const std::shared_ptr<NcclLink>& link) {
  static std::mutex mutex;
  static auto* const kKept = new std::vector<std::shared_ptr<NcclLink>>;
  const std::lock_guard lock(mutex);
  kKept->push_back(link);
}

class NcclBootstrap final : public Bootstrap {
 public:
  explicit NcclBootstrap(std::shared_ptr<NcclLink> link) : link_(std::move(link)) {}

  int rank() const override { return link_->rank; }
  int num_ranks() const override { return link_->num_ranks; }
  Result<std::vector<Bytes>> all_gather(std::span<const std::byte> mine,
                                        std::chrono::milliseconds timeout) override;

 private:
  const std::shared_ptr<NcclLink> link_;
  std::uint64_t sequence_ = 0;
  Status failure_;
};

Result<std::vector<Bootstrap::Bytes>> NcclBootstrap::all_gather(std::span<const std::byte> mine,
                                                                std::chrono::milliseconds timeout) {
  if (!failure_.ok()) return failure_;
  auto all = exchange_over_nccl(link_, mine, sequence_++, timeout);
  if (all.ok()) return all;
  failure_ = all.status();
  if (link_->has_pending.load()) {
    base::log(LogLevel::kWarn, link_->rank,
              "bootstrap: an all-gather of NCCL has not ended; its buffers stay allocated");
    keep_for_ever(link_);
  }
  return all;
}

/// Where the communicator puts this rank.
Status ask_place(NcclLink& link, int& device) {
  const NcclLibrary& library = link.library;
  EP_TRY(nccl_status(library, library.comm_count(link.comm, &link.num_ranks), "ncclCommCount"));
  EP_TRY(nccl_status(library, library.comm_user_rank(link.comm, &link.rank), "ncclCommUserRank"));
  EP_TRY(nccl_status(library, library.comm_cu_device(link.comm, &device), "ncclCommCuDevice"));
  if (link.rank >= 0 && link.rank < link.num_ranks) return Status();
  return Status(Errc::kInvalidArgument,
                "bootstrap: the communicator has rank " + std::to_string(link.rank) + " of " +
                    std::to_string(link.num_ranks) + "; is it one of this NCCL?");
}

}  // namespace

Result<std::unique_ptr<Bootstrap>> open_nccl_bootstrap(ncclComm* comm,
                                                       const NcclBootstrapConfig& config,
                                                       const MakeNcclBuffers& make_buffers) {
  if (comm == nullptr) return Status(Errc::kInvalidArgument, "bootstrap: comm is null");
  const auto link = std::make_shared<NcclLink>();
  link->comm = comm;
  EP_TRY_ASSIGN(link->library, find_nccl(config.library));
  EP_TRY(await_comm(link->library, comm, config.timeout));
  int device = 0;
  EP_TRY(ask_place(*link, device));
  EP_TRY_ASSIGN(link->buffers, make_buffers(device, link->num_ranks));
  auto bootstrap = std::make_unique<NcclBootstrap>(link);
  EP_TRY(bootstrap->barrier(config.timeout));
  return std::unique_ptr<Bootstrap>(std::move(bootstrap));
}

}  // namespace ep::fabric
