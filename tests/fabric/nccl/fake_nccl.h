// SPDX-License-Identifier: Apache-2.0
// A small NCCL over memory of the host: ranks share a world, each has a communicator that follows a
// script.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace ep::test {

/// Lies in memory that the ranks share, also as processes.
struct FakeNcclWorld {
  static constexpr int kMaxRanks = 8;
  static constexpr std::size_t kMaxBytes = std::size_t{64} << 10;

  struct Rank {
    /// All-gathers that it has contributed to, and whose results it has copied.
    std::atomic<std::uint64_t> num_sent{0};
    std::atomic<std::uint64_t> num_taken{0};
    std::array<std::byte, kMaxBytes> bytes{};
  };
  std::array<Rank, kMaxRanks> ranks{};
};

/// What a cudaStream_t is here.
struct FakeStream {
  std::atomic<int> num_pending{0};
};

}  // namespace ep::test

/// The script is written before the communicator is used.
struct ncclComm {
  ncclComm(ep::test::FakeNcclWorld& the_world, int its_rank, int its_count)
      : world(the_world), rank(its_rank), count(its_count) {}
  ncclComm(const ncclComm&) = delete;
  ncclComm& operator=(const ncclComm&) = delete;
  /// Ends what has not ended.
  ~ncclComm() {
    is_ending.store(true);
    is_released.store(true);
    for (std::thread& worker : workers) worker.join();
  }

  static constexpr int kNever = -1;

  ep::test::FakeNcclWorld& world;
  const int rank;
  const int count;

  int reported_rank = rank;
  int count_result = 0;
  /// Number of the all-gather that goes wrong, counted from 0.
  int fails_at = kNever;   ///< returns ncclSystemError
  int breaks_at = kNever;  ///< is accepted and never ends; the communicator then has a remote error
  int hangs_at = kNever;   ///< is accepted and never ends
  int blocks_at = kNever;  ///< does not return before is_released
  int spoils_at = kNever;  ///< brings zeros instead of rank 0's bytes
  /// So many answers of "in progress" come first, and after each all-gather.
  int busy_answers = 0;

  std::atomic<int> state{0};
  std::atomic<int> num_busy{0};
  std::atomic<int> num_gathers{0};
  std::atomic<int> num_calls{0};
  std::atomic<bool> is_blocked{false};
  std::atomic<bool> is_released{false};
  std::atomic<bool> is_ending{false};
  std::mutex mutex;
  std::vector<std::thread> workers;
};
