// SPDX-License-Identifier: Apache-2.0
// What stands behind a Group: arena, pool, engine, and the next operation's common parameters.
#pragma once

#include "core/device_budget.h"
#include "core/engine.h"
#include "core/expert_tables.h"
#include "core/rails.h"
#include "fabric/arena.h"
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
  static constexpr std::int64_t kPoolGrowthBytes = 64 << 20;

  struct Parts {
    ResolvedConfig config;
    std::unique_ptr<fabric::Arena> arena;
    std::unique_ptr<Engine> engine;
    /// Null: nobody shares a device whose kernels must fit on it together.
    std::unique_ptr<DeviceShare> share{};
    /// Null: all ranks are of one node.
    std::unique_ptr<Rails> rails{};
  };
  explicit GroupState(Parts parts);

  /// Makes the control region ready for the first operation.
  Status initialize();

  int rank() const { return arena_->rank(); }
  int num_ranks() const { return arena_->num_ranks(); }
  const GroupConfig& config() const { return config_; }
  const layout::ControlLayout& layout() const { return layout_; }
  fabric::Arena& arena() { return *arena_; }
  fabric::Pool& pool() const { return *pool_; }
  Engine& engine() const { return *engine_; }
  /// Null: all ranks are of one node.
  const Rails* rails() const { return rails_.get(); }

  /// Kept by handles: a handle of another group, or of one that is gone, is refused.
  const std::shared_ptr<const int>& identity() const { return identity_; }

  /// Of the pool. Under capture the pool does not grow, and the block lives as long as the graph.
  Result<std::shared_ptr<fabric::Block>> allocate_block(std::int64_t bytes);

  /// A contiguous tensor in the pool.
  Result<Tensor> allocate(DType dtype, std::initializer_list<std::int64_t> shape);

  /// The map where the engine's roles can read it.
  Result<std::shared_ptr<const ExpertTables>> expert_tables(const ExpertMap& map, Stream stream);

  /// Parameters of the next operation, without its announcement.
  primitives::OpParams op_params() const;
  /// For tests on GPUs: OpParams::ctas_by_sm of all later launches.
  void count_ctas(std::uint32_t* ctas_by_sm) { ctas_by_sm_ = ctas_by_sm; }
  /// Numbers calls from 1, refused ones included.
  std::uint64_t next_call() { return ++num_calls_; }
  /// Channels of a call: its own budget, the group's, the process default, or the suggestion, as
  /// far as the device and this rank's share of it go.
  int num_channels(const std::optional<int>& of_call, const OpShape& shape) const;
  /// kInvalidArgument for a call's budget that is out of range, or more than this rank's share.
  Status check_num_sms(const std::optional<int>& of_call) const;

  /// An array of this rank's control region, in the engine's memory: only for Engine::read().
  template <class T>
  T* control(std::int64_t offset) const {
    return layout::array_at<T>(arena_->base(rank(), 0), offset);
  }

  /// ok, or the group's first failure as the error that the operation which met it returns.
  Status first_failure() const;
  /// kAborted with the first failure, for every later call; ok if there is none.
  Status check_usable();
  /// The first failure; else, once, the last refusal that no call has returned.
  Status take_status();

  /// Whether the ranks refused this call; its refusal counts as returned.
  bool is_refused(std::uint64_t call);

 private:
  void note_refusal();

  GroupConfig config_;
  layout::ControlLayout layout_;
  std::uint64_t timeout_ns_;
  std::unique_ptr<DeviceShare> share_;
  std::unique_ptr<fabric::Arena> arena_;
  std::unique_ptr<Rails> rails_;
  std::unique_ptr<fabric::Pool> pool_;
  ExpertTableCache expert_tables_;
  /// Destroyed before the memory that its operations use.
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<const int> identity_;
  std::uint64_t num_calls_ = 0;
  std::uint32_t* ctas_by_sm_ = nullptr;
  /// Epoch of the last refusal that was noticed, and its error until somebody takes it.
  std::uint64_t noticed_epoch_ = 0;
  Status untaken_refusal_;
};

}  // namespace core
}  // namespace ep
