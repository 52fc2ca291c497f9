// SPDX-License-Identifier: Apache-2.0
// What stands behind a Group: arena, pool, worker threads, and the next operation's common
// parameters.
#pragma once

#include "fabric/host/arena.h"
#include "fabric/host/launcher.h"
#include "fabric/pool.h"
#include "layout/control.h"
#include "primitives/op_context.h"

#include <ep/config.h>
#include <ep/group.h>
#include <ep/sm_budget.h>
#include <ep/status.h>
#include <ep/tensor.h>

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>

namespace ep {

/// A block of the pool behind a Tensor.
class Storage {
 public:
  explicit Storage(std::shared_ptr<fabric::Block> block) : block_(std::move(block)) {}
  const fabric::Block& block() const { return *block_; }

 private:
  std::shared_ptr<fabric::Block> block_;
};

namespace core {

/// GroupConfig with every default filled in.
struct ResolvedConfig {
  GroupConfig config;
  std::chrono::milliseconds timeout{};
};

/// Fills in defaults and checks ranges. Local.
Result<ResolvedConfig> resolve_config(const GroupConfig& config, int num_ranks);

layout::ControlShape control_shape(const GroupConfig& config, int num_ranks);

class GroupState {
 public:
  struct Parts {
    ResolvedConfig config;
    std::unique_ptr<fabric::HostArena> arena;
  };
  explicit GroupState(Parts parts);

  int rank() const { return arena_->rank(); }
  int num_ranks() const { return arena_->num_ranks(); }
  const GroupConfig& config() const { return config_; }
  const layout::ControlLayout& layout() const { return layout_; }
  fabric::HostArena& arena() { return *arena_; }
  fabric::Pool& pool() const { return *pool_; }
  fabric::HostLauncher& launcher() { return launcher_; }

  /// Kept by handles: a handle of another group, or of one that is gone, is refused.
  const std::shared_ptr<const int>& identity() const { return identity_; }

  /// A contiguous tensor in the pool.
  Result<Tensor> allocate(DType dtype, std::initializer_list<std::int64_t> shape);

  /// Parameters of the next operation, without its announcement.
  primitives::OpParams op_params() const;
  /// Channels of a call: its own budget, the group's, the process default, or the suggestion. All
  /// were checked.
  int num_channels(const std::optional<int>& of_call, const OpShape& shape) const;

  /// An array of this rank's control region.
  template <class T>
  T* control(std::int64_t offset) const {
    return layout::array_at<T>(arena_->base(rank(), 0), offset);
  }
  const layout::LocalState& local() const { return *control<layout::LocalState>(layout_.local); }
  /// Number of the last finished operation.
  std::uint64_t epoch() const { return local().epoch.value; }

  /// ok, or the group's first failure as the error that the operation which met it returns.
  Status first_failure() const;
  /// kAborted with the first failure, for every later call; ok if there is none.
  Status check_usable() const;

 private:
  GroupConfig config_;
  layout::ControlLayout layout_;
  std::uint64_t timeout_ns_;
  std::unique_ptr<fabric::HostArena> arena_;
  std::unique_ptr<fabric::Pool> pool_;
  fabric::HostLauncher launcher_;
  std::shared_ptr<const int> identity_;
};

}  // namespace core
}  // namespace ep
