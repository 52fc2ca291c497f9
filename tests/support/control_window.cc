// SPDX-License-Identifier: Apache-2.0
// The control regions of several ranks in plain memory: for roles and primitives without a group.
#include "tests/support/control_window.h"

#include <algorithm>

namespace ep::test {
namespace {

// Long enough for any machine: tests of deadlines set their own.
constexpr std::uint64_t kPatientNs = 60'000'000'000;

}  // namespace

ControlWindow::ControlWindow(const layout::ControlShape& shape)
    : layout_(layout::make_control_layout(shape)),
      peer_table_(static_cast<std::size_t>(shape.num_ranks) * layout::kMaxSegments),
      gone_flags_(static_cast<std::size_t>(shape.num_ranks)) {
  const std::int64_t num_lines = layout_.total_bytes / layout::kLineBytes;
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    regions_.emplace_back(static_cast<std::size_t>(num_lines));
    const auto segment = static_cast<std::size_t>(rank) * layout::kMaxSegments;
    peer_table_[segment].store(region(rank), std::memory_order_relaxed);
    params_.push_back({.peer_table = peer_table_.data(),
                       .own = region(rank),
                       .gone_flags = gone_flags_.data(),
                       .board = region(rank),
                       .num_peers = shape.num_ranks,
                       .layout = layout_,
                       .announcement = {},
                       .rank = rank,
                       .timeout_ns = kPatientNs});
  }
  for (primitives::OpParams& params : params_) {
    for (int peer = 0; peer < std::min(shape.num_ranks, primitives::OpParams::kNumBases); ++peer)
      params.bases[peer] = region(peer);
  }
}

std::byte* ControlWindow::region(int rank) {
  return regions_[static_cast<std::size_t>(rank)].front().bytes;
}

void ControlWindow::set_next_epoch(std::uint64_t epoch) {
  for (int rank = 0; rank < num_ranks(); ++rank) local(rank).epoch.value = epoch - 1;
}

void ControlWindow::set_timeout(std::uint64_t timeout_ns) {
  for (primitives::OpParams& params : params_) params.timeout_ns = timeout_ns;
}

void ControlWindow::set_gone(int rank) {
  gone_flags_[static_cast<std::size_t>(rank)].store(1, std::memory_order_release);
}

}  // namespace ep::test
