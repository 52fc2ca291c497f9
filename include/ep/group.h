// SPDX-License-Identifier: Apache-2.0
// A group of ranks that dispatch to and combine from each other.
#pragma once

#include <ep/api.h>
#include <ep/bootstrap.h>
#include <ep/config.h>
#include <ep/sm_budget.h>
#include <ep/status.h>
#include <ep/tensor.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>

namespace ep {

namespace core {
class GroupState;
}

/// What a rank has sent to other nodes since its group was created.
struct NetUse {
  std::string provider{};  ///< of the network; empty in a group of one node
  std::int64_t put_bytes = 0;
  std::int64_t puts = 0;     ///< with bytes
  std::int64_t signals = 0;  ///< with a put or alone
};

/// One rank's membership. Operations of a group are totally ordered and every rank calls the same
/// ones in the same order; one thread at a time may call into a group. Concurrency takes a second
/// group. Several groups, and several ranks as threads of one process, coexist.
///
/// After kPeerTimeout, kFabric or kAborted the group stays failed and every later call returns
/// kAborted with the first failure. kInvalidArgument leaves it usable. Destruction is local, never
/// collective, and safe in any order; on CUDA it waits for the last operation.
///
/// A CUDA group belongs to the device that is current when create() is called. Kernels that wait
/// for each other must fit on their device together: the budgets of all ranks of a group on one
/// device, and of this process's other groups there, are at most its SMs.
class EP_API Group {
 public:
  /// Collective: all ranks of `bootstrap`, which is not used after the call. Agrees on the
  /// configuration first, then allocates. Errors: kInvalidArgument (a value out of range, or
  /// different across ranks, or more SMs than a device has), kUnsupported (backend or topology),
  /// kOutOfMemory, kFabric, kPeerTimeout.
  static Result<std::unique_ptr<Group>> create(Bootstrap& bootstrap, const GroupConfig& config);

  /// Exact bytes of the arena that create() would allocate for one of `num_ranks` ranks. Local.
  static Result<ArenaPlan> plan(const GroupConfig& config, int num_ranks);

  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group();

  int rank() const;
  int num_ranks() const;
  const GroupConfig& config() const;

  /// A contiguous tensor in this rank's arena, uninitialised: rows of a combine that lie there are
  /// read in place. Local; may grow the pool. Errors: kInvalidArgument, kOutOfMemory, kPeerTimeout
  /// (a peer did not map new memory).
  Result<Tensor> allocate(DType dtype, std::initializer_list<std::int64_t> shape);

  /// Grows the pool so that a block of `bytes` can be allocated without growing again: what a
  /// captured call takes must be there before. Local, but
  /// waits until every peer has mapped the new segment. Errors as allocate.
  Status reserve(std::int64_t bytes);

  /// The budget that a call of this shape runs with, its own `num_sms` included: what is in force
  /// on this group's backend and device. The shape's num_ranks and backend are the group's.
  int num_sms(const OpShape& shape, std::optional<int> of_call = {}) const;

  /// Bytes of all segments now.
  std::int64_t arena_bytes() const;
  /// Segments allocated since creation: constant in a steady state.
  int num_segments() const;

  /// Local. Between two operations it stands still.
  NetUse net_use() const;

  /// The group's first failure. Else, once, why the ranks refused an operation whose call had
  /// returned before that was known (CUDA); of several the last. Never waits: an operation that is
  /// still queued has no status yet.
  Status status() const;

  /// For the operations in moe.h.
  core::GroupState& state() const { return *state_; }
  /// For create(), and for tests that put a group together from parts of their own.
  explicit Group(std::unique_ptr<core::GroupState> state);

 private:
  std::unique_ptr<core::GroupState> state_;
};

}  // namespace ep
