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
#include <string>

namespace ep::core {

class OpCall {
 public:
  OpCall(GroupState& state, layout::OpKind kind);

  GroupState& state() const { return state_; }
  layout::OpAnnouncement& announcement() { return announcement_; }
  /// Fields of the announcement that a routing decides.
  void announce_routing(const Routing& routing);

  primitives::OpParams params(bool streams_rows) const;

  /// Takes this rank's turn with a poison word, so that all ranks refuse the operation and the
  /// group goes on; waits for its end. Under capture no turn is taken: a graph would refuse
  /// forever. Returns the refusal's status, or the fault that came between.
  Status refuse(const Refusal& refusal) const;

  /// After a launch. Where it has ended: ok, the group's fault, or why the ranks refused the
  /// operation. Where it is only queued: ok; Group::status() has the rest.
  Status conclude() const;
  /// Waits for the launches on the stream, then as conclude() where they have ended.
  Status settle(Stream stream) const;
  /// "dispatch, epoch 17, rank 3: ": of an operation that the ranks refused.
  std::string where() const;

 private:
  Status judge() const;

  GroupState& state_;
  layout::OpKind kind_;
  std::uint64_t number_;
  layout::OpAnnouncement announcement_;
};

/// Rows whose bytes exceed what a cache holds are written past it.
bool streams_rows(std::int64_t num_bytes);

}  // namespace ep::core
