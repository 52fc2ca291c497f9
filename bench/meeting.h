// SPDX-License-Identifier: Apache-2.0
// Where the ranks of a run meet between operations.
#pragma once

#include <ep/bootstrap.h>
#include <ep/status.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace ep::bench {

/// A barrier that learns of failed ranks, so that nobody waits for them.
class Meeting {
 public:
  Meeting() = default;
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  virtual ~Meeting() = default;

  /// Returns once all ranks have called it. Errors: kPeerTimeout naming a failed rank, or after
  /// `timeout`; kFabric.
  virtual Status wait(std::chrono::milliseconds timeout) = 0;
  /// Tells the others that this rank will not come again.
  virtual void leave() = 0;
  /// The rank that was killed, as a sentence; empty if none is known.
  virtual std::string obituary() const { return {}; }
};

/// The words of a meeting, in memory that all its ranks share; the launcher also writes there.
class MeetingBoard {
 public:
  explicit MeetingBoard(int num_ranks) : num_ranks_(num_ranks) {}

  Status wait(std::chrono::milliseconds timeout);
  /// The first failure stays. `signal` is 0 for a rank that ended by itself.
  void report_failure(int rank, int signal);
  std::optional<int> failed_rank() const;
  std::string obituary() const;

 private:
  bool has_failed_or_passed(std::uint32_t round) const;
  Status missing(std::chrono::milliseconds timeout) const;

  int num_ranks_;
  std::atomic<std::uint32_t> num_arrived_{0};
  /// Ranks park on this word, across processes.
  std::atomic<std::uint32_t> round_{0};
  /// 0: none; else (rank + 1) << 8 | signal.
  std::atomic<std::uint32_t> failure_{0};
};

/// Of ranks that this program started.
class BoardMeeting : public Meeting {
 public:
  BoardMeeting(MeetingBoard& board, int rank) : board_(board), rank_(rank) {}
  Status wait(std::chrono::milliseconds timeout) override { return board_.wait(timeout); }
  void leave() override { board_.report_failure(rank_, 0); }
  std::string obituary() const override { return board_.obituary(); }

 private:
  MeetingBoard& board_;
  int rank_;
};

/// Of ranks that a launcher started: a barrier of the bootstrap, whose connections tell of deaths.
class BootstrapMeeting : public Meeting {
 public:
  explicit BootstrapMeeting(Bootstrap& bootstrap) : bootstrap_(bootstrap) {}
  Status wait(std::chrono::milliseconds timeout) override { return bootstrap_.barrier(timeout); }
  void leave() override {}

 private:
  Bootstrap& bootstrap_;
};

}  // namespace ep::bench
