// SPDX-License-Identifier: Apache-2.0
// What all operations share around their launch: the announcement, the refusal that all ranks take
// part in, the verdict.
#pragma once

#include "core/call_checks.h"
#include "core/group_state.h"
#include "core/routing.h"
#include "layout/announcement.h"
#include "primitives/op_context.h"

#include <ep/status.h>

#include <cstdint>

namespace ep::core {

class OpCall {
 public:
  OpCall(GroupState& state, layout::OpKind kind);

  GroupState& state() const { return state_; }
  std::uint64_t epoch() const { return epoch_; }
  layout::OpAnnouncement& announcement() { return announcement_; }
  /// Fields of the announcement that a routing decides.
  void announce_routing(const Routing& routing);

  primitives::OpParams params(bool streams_rows) const;

  /// Takes this rank's turn with a poison word, so that all ranks refuse the operation and the
  /// group goes on. Returns the refusal's status, or the fault that came between.
  Status refuse(const Refusal& refusal) const;

  /// After a launch: ok, the group's fault, or why the ranks refused the operation.
  Status conclude() const;

 private:
  GroupState& state_;
  layout::OpKind kind_;
  std::uint64_t epoch_;
  layout::OpAnnouncement announcement_;
};

/// Rows whose bytes exceed what a cache holds are written past it.
bool streams_rows(std::int64_t num_bytes);

}  // namespace ep::core
