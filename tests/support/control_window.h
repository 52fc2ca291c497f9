// SPDX-License-Identifier: Apache-2.0
// The control regions of several ranks in plain memory: for roles and primitives without a group.
#pragma once

#include "layout/control.h"
#include "primitives/op_context.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ep::test {

/// Regions end exactly where their layout ends, so that AddressSanitizer sees what lies behind.
class ControlWindow {
 public:
  explicit ControlWindow(const layout::ControlShape& shape);
  ControlWindow(const ControlWindow&) = delete;
  ControlWindow& operator=(const ControlWindow&) = delete;

  int num_ranks() const { return layout_.shape.num_ranks; }
  const layout::ControlLayout& layout() const { return layout_; }
  /// What an operation of `rank` gets; the test may change it.
  primitives::OpParams& params(int rank) { return params_[static_cast<std::size_t>(rank)]; }

  std::byte* region(int rank);
  template <class T>
  T* array(int rank, std::int64_t offset) {
    return layout::array_at<T>(region(rank), offset);
  }
  layout::LocalState& local(int rank) { return *array<layout::LocalState>(rank, layout_.local); }
  layout::FaultRecord& fault(int rank) { return *array<layout::FaultRecord>(rank, layout_.fault); }
  std::uint64_t& abort_word(int rank) { return array<layout::Counter>(rank, layout_.abort)->value; }

  /// The next operation of every rank has this epoch.
  void set_next_epoch(std::uint64_t epoch);
  void set_timeout(std::uint64_t timeout_ns);
  /// As the service thread does when a peer's connection ends.
  void set_gone(int rank);

 private:
  struct alignas(layout::kLineBytes) Line {
    std::byte bytes[layout::kLineBytes] = {};
  };

  layout::ControlLayout layout_;
  std::vector<std::vector<Line>> regions_;
  std::vector<std::atomic<std::byte*>> peer_table_;
  std::vector<std::atomic<std::uint32_t>> gone_flags_;
  std::vector<primitives::OpParams> params_;
};

}  // namespace ep::test
