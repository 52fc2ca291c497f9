// SPDX-License-Identifier: Apache-2.0
// all_gather over a star: every rank sends to rank 0, which answers with all contributions or with
// what went wrong.
#pragma once

#include "base/deadline.h"
#include "base/unique_fd.h"

#include <ep/bootstrap.h>
#include <ep/status.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace ep::fabric {

/// Rank 0's side. The first failure ends every later call, here and on all ranks that it can still
/// reach.
class HubBootstrap final : public Bootstrap {
 public:
  /// connections[r] leads to rank r; [0] is closed.
  explicit HubBootstrap(std::vector<base::UniqueFd> connections)
      : connections_(std::move(connections)) {}

  int rank() const override { return 0; }
  int num_ranks() const override { return static_cast<int>(connections_.size()); }
  Result<std::vector<Bytes>> all_gather(std::span<const std::byte> mine,
                                        std::chrono::milliseconds timeout) override;

 private:
  Result<std::vector<Bytes>> gather_and_send(std::span<const std::byte> mine,
                                             std::chrono::milliseconds timeout);
  Status collect(std::vector<Bytes>& contributions, std::chrono::milliseconds timeout);
  Status send_result(const std::vector<Bytes>& contributions, base::Deadline deadline) const;
  std::vector<int> open_fds() const;

  const std::vector<base::UniqueFd> connections_;
  std::uint64_t sequence_ = 0;
  Status failure_;
};

/// The other ranks' side.
class MemberBootstrap final : public Bootstrap {
 public:
  MemberBootstrap(int rank, int num_ranks, base::UniqueFd hub)
      : rank_(rank), num_ranks_(num_ranks), hub_(std::move(hub)) {}

  int rank() const override { return rank_; }
  int num_ranks() const override { return num_ranks_; }
  Result<std::vector<Bytes>> all_gather(std::span<const std::byte> mine,
                                        std::chrono::milliseconds timeout) override;

 private:
  Result<std::vector<Bytes>> exchange(std::span<const std::byte> mine,
                                      std::chrono::milliseconds timeout);

  const int rank_;
  const int num_ranks_;
  const base::UniqueFd hub_;
  std::uint64_t sequence_ = 0;
  Status failure_;
};

/// Payload of kResult, and back. Errors: kFabric where it is malformed or has not `num_ranks`
/// parts.
Bootstrap::Bytes encode_result(const std::vector<Bootstrap::Bytes>& contributions);
Result<std::vector<Bootstrap::Bytes>> decode_result(std::span<const std::byte> payload,
                                                    int num_ranks);

}  // namespace ep::fabric
