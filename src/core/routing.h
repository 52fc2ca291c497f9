// SPDX-License-Identifier: Apache-2.0
// What a DispatchHandle holds: the tables of one dispatch and the records of what this rank
// received.
#pragma once

#include "core/group_state.h"
#include "fabric/pool.h"
#include "intranode/dispatch_params.h"
#include "layout/routing_tables.h"

#include <ep/expert_map.h>
#include <ep/moe.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

namespace ep::core {

class Routing {
 public:
  struct Spec {
    Layout layout = Layout::kFlat;
    int alignment = 1;
    CopyWay copy_way = CopyWay::kSender;  ///< never kAuto
    ExpertMap experts;
    DType idx_dtype = DType::kInt64;
    std::int64_t num_tokens = 0;
    int topk = 1;
  };

  /// Allocates the tables. Errors of the pool.
  static Result<std::shared_ptr<Routing>> create(GroupState& state,
                                                 const Spec& spec,
                                                 Stream stream);

  const Spec& spec() const { return spec_; }
  const layout::TableLayout& tables() const { return tables_; }
  bool has_expert_rows() const { return spec_.layout == Layout::kExpertMajor; }
  int num_local_experts() const { return spec_.experts.num_local(rank_); }
  bool belongs_to(const GroupState& state) const { return identity_.lock() == state.identity(); }

  /// Allocates the records of up to `num_pairs` received (token, rank) pairs.
  Status allocate_records(GroupState& state, std::int64_t num_pairs);

  intranode::RoutingParams params() const;
  const std::int32_t* src_tokens() const;
  const std::int32_t* record_rows() const;

  /// Where peers write the records.
  void announce_records(layout::BlockAnnouncement& block) const;

  /// Reads what the roles wrote. They must have ended.
  Status learn_sizes(Engine& engine);
  /// Rows needed, pairs. Precondition: learn_sizes().
  std::int64_t size(layout::Size size) const;

  /// Rows that this rank's outputs hold; a further dispatch with this routing drops the same rows.
  std::int64_t capacity() const { return capacity_; }
  void set_capacity(std::int64_t num_rows) { capacity_ = num_rows; }
  /// Rows that a tensor with one row per received row must have: as many as were received, or,
  /// where the host does not know that, as the outputs have.
  std::int64_t least_rows() const;

  /// While capturing: its memory lives as long as the graph.
  void retain(Engine& engine) const;

  Tensor expert_counts() const;
  Tensor expert_offsets() const;
  Tensor sizes() const;

 private:
  Routing() = default;

  Tensor table_tensor(std::int64_t offset, std::int64_t count) const;

  Spec spec_;
  int rank_ = 0;
  std::weak_ptr<const int> identity_;
  layout::TableLayout tables_;
  layout::RecordLayout records_;
  std::shared_ptr<const ExpertTables> experts_;
  std::optional<std::array<std::int64_t, layout::kNumSizes>> sizes_;
  std::int64_t capacity_ = 0;
  std::shared_ptr<fabric::Block> table_block_;
  /// Of all tensors in that block.
  std::shared_ptr<Storage> table_storage_;
  std::shared_ptr<fabric::Block> record_block_;
  /// layout::RailTableLayout, in groups of several nodes.
  std::shared_ptr<fabric::Block> rail_block_;
};

/// The announced form of a block of this rank's pool.
layout::Location announced(const fabric::Block& block, std::int64_t offset = 0);
layout::Location announced(fabric::Location location);

}  // namespace ep::core
