// SPDX-License-Identifier: Apache-2.0
// A bar on a terminal for runs of more than two seconds.
#pragma once

#include <chrono>
#include <cstdint>

namespace ep::bench {

class Progress {
 public:
  /// Draws to stderr if that is a terminal and `is_wanted`.
  Progress(std::int64_t num_steps, bool is_wanted);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// Clears the bar.
  ~Progress();

  void advance();

 private:
  using Clock = std::chrono::steady_clock;

  void draw() const;

  std::int64_t num_steps_;
  std::int64_t num_done_ = 0;
  bool is_shown_;
  bool is_drawn_ = false;
  Clock::time_point next_draw_;
};

}  // namespace ep::bench
