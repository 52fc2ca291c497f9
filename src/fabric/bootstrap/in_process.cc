// SPDX-License-Identifier: Apache-2.0
// Bootstrap of ranks that are threads of one process.
#include "base/check.h"
#include "base/deadline.h"
#include "fabric/bootstrap/rank_list.h"

#include <ep/bootstrap.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ep {
namespace fabric {
namespace {

/// One all_gather. Waiters hold it, so that the next round may begin before the last one of them
/// has looked.
struct Round {
  explicit Round(int num_ranks) : contributions(static_cast<std::size_t>(num_ranks)) {}

  std::vector<std::optional<Bootstrap::Bytes>> contributions;
  int num_missing() const {
    int missing = 0;
    for (const auto& contribution : contributions) missing += contribution ? 0 : 1;
    return missing;
  }
};

/// What the ranks of one call of make_in_process_bootstraps share.
class Meeting {
 public:
  explicit Meeting(int num_ranks)
      : num_ranks_(num_ranks),
        has_left_(static_cast<std::size_t>(num_ranks), false),
        round_(std::make_shared<Round>(num_ranks)) {}

  int num_ranks() const { return num_ranks_; }

  Result<std::vector<Bootstrap::Bytes>> all_gather(int rank,
                                                   std::span<const std::byte> mine,
                                                   std::chrono::milliseconds timeout);
  void leave(int rank);

 private:
  Status judge(const Round& round,
               const base::Deadline& deadline,
               std::chrono::milliseconds timeout);

  const int num_ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> has_left_;
  std::shared_ptr<Round> round_;
  /// The first failure, for every rank and every later call.
  Status failure_;
};

Result<std::vector<Bootstrap::Bytes>> Meeting::all_gather(int rank,
                                                          std::span<const std::byte> mine,
                                                          std::chrono::milliseconds timeout) {
  const base::Deadline deadline = base::Deadline::after(timeout);
  std::unique_lock lock(mutex_);
  const std::shared_ptr<Round> round = round_;
  if (failure_.ok()) {
    round->contributions[static_cast<std::size_t>(rank)].emplace(mine.begin(), mine.end());
    if (round->num_missing() == 0) round_ = std::make_shared<Round>(num_ranks_);
    changed_.notify_all();
  }
  while (round->num_missing() > 0) {
    EP_TRY(judge(*round, deadline, timeout));
    changed_.wait_until(lock, deadline.time_point());
  }
  std::vector<Bootstrap::Bytes> all;
  for (const auto& contribution : round->contributions) all.push_back(*contribution);
  return all;
}

/// Not ok once the round cannot end well; then it fails for all ranks alike.
Status Meeting::judge(const Round& round,
                      const base::Deadline& deadline,
                      std::chrono::milliseconds timeout) {
  if (!failure_.ok()) return failure_;
  std::vector<int> missing;
  std::vector<int> gone;
  for (int rank = 0; rank < num_ranks_; ++rank) {
    if (round.contributions[static_cast<std::size_t>(rank)]) continue;
    missing.push_back(rank);
    if (has_left_[static_cast<std::size_t>(rank)]) gone.push_back(rank);
  }
  if (!gone.empty()) {
    failure_ = Status(Errc::kPeerTimeout, "bootstrap: left: rank " + list_ranks(gone));
    failure_.set_peer(gone.front());
  } else if (deadline.expired()) {
    failure_ = Status(Errc::kPeerTimeout, "bootstrap: did not come within " + text_of(timeout) +
                                              ": rank " + list_ranks(missing));
    failure_.set_peer(missing.front());
  }
  if (!failure_.ok()) changed_.notify_all();
  return failure_;
}

void Meeting::leave(int rank) {
  const std::lock_guard lock(mutex_);
  has_left_[static_cast<std::size_t>(rank)] = true;
  changed_.notify_all();
}

class InProcessBootstrap final : public Bootstrap {
 public:
  InProcessBootstrap(int rank, std::shared_ptr<Meeting> meeting)
      : rank_(rank), meeting_(std::move(meeting)) {}
  ~InProcessBootstrap() override { meeting_->leave(rank_); }

  int rank() const override { return rank_; }
  int num_ranks() const override { return meeting_->num_ranks(); }
  Result<std::vector<Bytes>> all_gather(std::span<const std::byte> mine,
                                        std::chrono::milliseconds timeout) override {
    return meeting_->all_gather(rank_, mine, timeout);
  }

 private:
  const int rank_;
  const std::shared_ptr<Meeting> meeting_;
};

}  // namespace
}  // namespace fabric

Result<std::vector<std::unique_ptr<Bootstrap>>> make_in_process_bootstraps(int num_ranks) {
  if (num_ranks < 1) {
    return Status(Errc::kInvalidArgument,
                  "num_ranks = " + std::to_string(num_ranks) + ", expected at least 1");
  }
  const auto meeting = std::make_shared<fabric::Meeting>(num_ranks);
  std::vector<std::unique_ptr<Bootstrap>> bootstraps;
  for (int rank = 0; rank < num_ranks; ++rank) {
    bootstraps.push_back(std::make_unique<fabric::InProcessBootstrap>(rank, meeting));
  }
  return bootstraps;
}

}  // namespace ep
