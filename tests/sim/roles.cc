// SPDX-License-Identifier: Apache-2.0
// Instantiates the real roles for the simulated executor; this source alone is compiled with
// -fsanitize=thread, whose calls src/fabric/sim/hooks.cc takes.
#include "tests/sim/roles.h"

#include "fabric/sim/exec.h"
#include "intranode/host_launch.h"

namespace ep::test {
namespace {

using fabric::sim::Exec;
using fabric::sim::Group;

template <class Params, class Bodies>
std::vector<SimRole<Params>> roles_in(const Bodies& bodies,
                                      const Params& params,
                                      const char* const* names) {
  std::vector<SimRole<Params>> roles;
  for (const auto& body : bodies) {
    if (params.has_role(body.role)) roles.push_back({names[static_cast<int>(body.role)], body.run});
  }
  return roles;
}

}  // namespace

std::vector<SimRole<intranode::DispatchParams>> sim_roles_of(
    const intranode::DispatchParams& params) {
  constexpr const char* kNames[] = {"route", "send", "copy"};
  return roles_in(intranode::kDispatchBodies<Exec, Group>, params, kNames);
}

std::vector<SimRole<intranode::CombineParams>> sim_roles_of(
    const intranode::CombineParams& params) {
  constexpr const char* kNames[] = {"prepare", "pull", "push"};
  return roles_in(intranode::kCombineBodies<Exec, Group>, params, kNames);
}

std::int64_t sim_scratch_bytes(const layout::TableShape& shape) {
  return intranode::scratch_bytes(shape);
}

}  // namespace ep::test
