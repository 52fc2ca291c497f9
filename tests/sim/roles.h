// SPDX-License-Identifier: Apache-2.0
// The intranode roles, compiled for the simulated executor with a call at every plain access.
#pragma once

#include "fabric/sim/group.h"
#include "intranode/combine_params.h"
#include "intranode/dispatch_params.h"
#include "primitives/executor.h"

#include <cstdint>
#include <vector>

namespace ep::test {

template <class Params>
struct SimRole {
  const char* name;
  void (*run)(fabric::sim::Group, const Params&, const primitives::Lane&);
};

/// The roles that such a launch has.
std::vector<SimRole<intranode::DispatchParams>> sim_roles_of(
    const intranode::DispatchParams& params);
std::vector<SimRole<intranode::CombineParams>> sim_roles_of(const intranode::CombineParams& params);

/// Scratch of a lane.
std::int64_t sim_scratch_bytes(const layout::TableShape& shape);

}  // namespace ep::test
