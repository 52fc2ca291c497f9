// SPDX-License-Identifier: Apache-2.0
// Move-only owner of a file descriptor.
#pragma once

#include <utility>

namespace ep::base {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, kNone)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, kNone));
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, kNone); }
  /// Closes what it owns, if anything; a failure is logged.
  void reset() { reset(kNone); }

 private:
  static constexpr int kNone = -1;
  void reset(int fd);

  int fd_ = kNone;
};

}  // namespace ep::base
