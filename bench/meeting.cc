// SPDX-License-Identifier: Apache-2.0
// A barrier of atomics in shared memory that yields, then parks on a futex.
#include "bench/meeting.h"

#include <cerrno>
#include <csignal>
#include <ctime>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ep::bench {
namespace {

using Clock = std::chrono::steady_clock;

/// A rank that is a few microseconds late does not cost a system call to wake from.
constexpr int kYieldsBeforeParking = 2000;
/// A parked rank looks at the deadline and at failures this often even if nobody wakes it.
constexpr std::chrono::milliseconds kLongestPark{50};
constexpr std::uint32_t kSignalBits = 8;

std::uint32_t* address_of(std::atomic<std::uint32_t>& word) {
  static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
  return reinterpret_cast<std::uint32_t*>(&word);
}

void park(std::atomic<std::uint32_t>& word, std::uint32_t seen) {
  const timespec limit = {.tv_sec = 0, .tv_nsec = std::chrono::nanoseconds(kLongestPark).count()};
  // EAGAIN, EINTR and ETIMEDOUT alike: the caller looks again.
  static_cast<void>(syscall(SYS_futex, address_of(word), FUTEX_WAIT, seen, &limit, nullptr, 0));
}

void wake_all(std::atomic<std::uint32_t>& word) {
  constexpr int kEverybody = 1 << 30;
  static_cast<void>(
      syscall(SYS_futex, address_of(word), FUTEX_WAKE, kEverybody, nullptr, nullptr, 0));
}

}  // namespace

bool MeetingBoard::has_failed_or_passed(std::uint32_t round) const {
  return round_.load() != round || failure_.load() != 0;
}

Status MeetingBoard::missing(std::chrono::milliseconds timeout) const {
  if (const auto rank = failed_rank()) {
    const std::string killed = obituary();
    const std::string what =
        killed.empty() ? "rank " + std::to_string(*rank) + " gave up, see its message" : killed;
    return Status(Errc::kPeerTimeout, "barrier of the bench: " + what).set_peer(*rank);
  }
  return Status(Errc::kPeerTimeout, "barrier of the bench: " + std::to_string(num_arrived_.load()) +
                                        " of " + std::to_string(num_ranks_) +
                                        " ranks came within " + std::to_string(timeout.count()) +
                                        " ms");
}

Status MeetingBoard::wait(std::chrono::milliseconds timeout) {
  const std::uint32_t round = round_.load();
  if (num_arrived_.fetch_add(1) + 1 == static_cast<std::uint32_t>(num_ranks_)) {
    num_arrived_.store(0);
    round_.fetch_add(1);
    wake_all(round_);
    return failure_.load() == 0 ? Status() : missing(timeout);
  }
  for (int i = 0; i < kYieldsBeforeParking && !has_failed_or_passed(round); ++i) sched_yield();
  const Clock::time_point deadline = Clock::now() + timeout;
  while (!has_failed_or_passed(round) && Clock::now() < deadline) park(round_, round);
  return round_.load() != round ? Status() : missing(timeout);
}

void MeetingBoard::report_failure(int rank, int signal) {
  const std::uint32_t failure =
      (static_cast<std::uint32_t>(rank + 1) << kSignalBits) | static_cast<std::uint32_t>(signal);
  std::uint32_t none = 0;
  failure_.compare_exchange_strong(none, failure);
  wake_all(round_);
}

std::optional<int> MeetingBoard::failed_rank() const {
  const std::uint32_t failure = failure_.load();
  if (failure == 0) return std::nullopt;
  return static_cast<int>(failure >> kSignalBits) - 1;
}

std::string MeetingBoard::obituary() const {
  const std::uint32_t signal = failure_.load() & ((1u << kSignalBits) - 1);
  const std::optional<int> rank = failed_rank();
  if (signal == 0 || !rank) return {};
  return "rank " + std::to_string(*rank) + " was killed by signal " + std::to_string(signal);
}

}  // namespace ep::bench
