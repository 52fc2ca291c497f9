// SPDX-License-Identifier: Apache-2.0
// All ranks of a dispatch up to the point where rows would move: their routing tables.
#pragma once

#include "fabric/host/fibers.h"
#include "intranode/routing_view.h"
#include "primitives/host_exec.h"
#include "tests/support/control_window.h"
#include "tests/support/oracle.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ep::test {

/// The steps of route_role on fibers of the calling thread, over plain memory.
class RoutedRanks {
 public:
  using View = intranode::RoutingView<primitives::HostExec>;

  /// `lanes_per_rank` share the tickets of each rank; 0: the test runs the steps itself.
  RoutedRanks(const Oracle& oracle, int lanes_per_rank);

  View view(int rank) const { return View(params(rank).routing); }
  const intranode::DispatchParams& params(int rank) const {
    return params_[static_cast<std::size_t>(rank)];
  }
  bool is_resolved() const { return is_resolved_; }

 private:
  intranode::DispatchParams make_params(const Oracle& oracle, int rank);
  void route(const intranode::DispatchParams& params);

  int lanes_per_rank_;
  ControlWindow window_;
  std::vector<std::int32_t> rank_of_;
  std::vector<std::int32_t> local_of_;
  std::vector<std::vector<std::uint64_t>> blocks_;
  std::vector<intranode::DispatchParams> params_;
  bool is_resolved_ = true;
};

}  // namespace ep::test
