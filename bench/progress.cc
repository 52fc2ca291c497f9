// SPDX-License-Identifier: Apache-2.0
// Draws over one line of the terminal.
#include "bench/progress.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <unistd.h>

namespace ep::bench {
namespace {

constexpr std::chrono::seconds kQuietTime{2};
constexpr std::chrono::milliseconds kDrawPeriod{100};
constexpr std::int64_t kBarWidth = 40;
constexpr std::int64_t kPercent = 100;

}  // namespace

Progress::Progress(std::int64_t num_steps, bool is_wanted)
    : num_steps_(std::max<std::int64_t>(num_steps, 1)),
      is_shown_(is_wanted && isatty(STDERR_FILENO) == 1),
      next_draw_(Clock::now() + kQuietTime) {}

Progress::~Progress() {
  if (is_drawn_) std::fputs("\r\x1b[K", stderr);
}

void Progress::advance() {
  ++num_done_;
  if (!is_shown_ || Clock::now() < next_draw_) return;
  next_draw_ = Clock::now() + kDrawPeriod;
  is_drawn_ = true;
  draw();
}

void Progress::draw() const {
  const std::int64_t done = std::min(num_done_, num_steps_);
  const auto filled = static_cast<std::size_t>(done * kBarWidth / num_steps_);
  const std::string bar =
      std::string(filled, '#') + std::string(static_cast<std::size_t>(kBarWidth) - filled, '.');
  std::fprintf(stderr, "\r[%s] %3d %%", bar.c_str(),
               static_cast<int>(done * kPercent / num_steps_));
  std::fflush(stderr);
}

}  // namespace ep::bench
