// SPDX-License-Identifier: Apache-2.0
// Tables and records of a dispatch.
#include "core/routing.h"

#include "base/check.h"
#include "layout/rail_tables.h"

#include <algorithm>
#include <utility>

namespace ep {
namespace core {

layout::Location announced(fabric::Location location) {
  return {.segment = static_cast<std::uint32_t>(location.segment),
          .offset_units = static_cast<std::uint32_t>(location.offset / layout::kLocationUnit)};
}

layout::Location announced(const fabric::Block& block, std::int64_t offset) {
  const fabric::Location start = block.location;
  return announced(fabric::Location{.segment = start.segment, .offset = start.offset + offset});
}

Result<std::shared_ptr<Routing>> Routing::create(GroupState& state,
                                                 const Spec& spec,
                                                 Stream stream) {
  std::shared_ptr<Routing> routing(new Routing());
  routing->spec_ = spec;
  routing->rank_ = state.rank();
  routing->identity_ = state.identity();
  routing->tables_ =
      layout::make_table_layout({.num_ranks = state.num_ranks(),
                                 .num_experts = spec.experts.num_experts(),
                                 .num_tokens = spec.num_tokens,
                                 .topk = spec.topk,
                                 .has_expert_rows = spec.layout == Layout::kExpertMajor});
  EP_TRY_ASSIGN(routing->experts_, state.expert_tables(spec.experts, stream));
  EP_TRY_ASSIGN(routing->table_block_, state.allocate_block(routing->tables_.total_bytes));
  if (const Rails* rails = state.rails()) {
    const layout::RailTableLayout layout =
        layout::make_rail_table_layout({.tables = routing->tables_.shape,
                                        .num_nodes = rails->net().shape.num_nodes,
                                        .num_delegates = rails->num_delegates(),
                                        .max_tokens = rails->net().shape.max_tokens});
    EP_TRY_ASSIGN(routing->rail_block_, state.allocate_block(layout.total_bytes));
  }
  routing->table_storage_ = std::make_shared<Storage>(routing->table_block_);
  return routing;
}

Status Routing::allocate_records(GroupState& state, std::int64_t num_pairs) {
  records_ = layout::make_record_layout(num_pairs, spec_.topk, has_expert_rows());
  EP_TRY_ASSIGN(record_block_, state.allocate_block(records_.total_bytes));
  return Status();
}

intranode::RoutingParams Routing::params() const {
  return {.tables = tables_,
          .block = table_block_->data,
          .rank_of = experts_->rank_of(),
          .local_of = experts_->local_of(),
          .num_local_experts = num_local_experts(),
          .alignment = spec_.alignment,
          .rail_block = rail_block_ == nullptr ? nullptr : rail_block_->data};
}

const std::int32_t* Routing::src_tokens() const {
  return layout::array_at<std::int32_t>(record_block_->data, records_.src_tokens);
}

const std::int32_t* Routing::record_rows() const {
  return layout::array_at<std::int32_t>(record_block_->data, records_.record_rows);
}

void Routing::announce_records(layout::BlockAnnouncement& block) const {
  block.place(layout::Section::kSrcTokens, announced(*record_block_, records_.src_tokens));
  block.place(layout::Section::kRecordRows, announced(*record_block_, records_.record_rows));
}

Status Routing::learn_sizes(Engine& engine) {
  std::array<std::int64_t, layout::kNumSizes> sizes{};
  EP_TRY(engine.read(sizes.data(), table_block_->data + tables_.sizes, sizeof(sizes)));
  sizes_ = sizes;
  return Status();
}

std::int64_t Routing::size(layout::Size size) const {
  EP_CHECK(sizes_.has_value());
  return (*sizes_)[static_cast<std::size_t>(size)];
}

std::int64_t Routing::least_rows() const {
  return sizes_ ? std::min(size(layout::Size::kNeededRows), capacity_) : capacity_;
}

void Routing::retain(Engine& engine) const {
  if (!engine.is_capturing()) return;
  engine.retain(experts_);
  engine.retain(table_block_);
  engine.retain(record_block_);
}

Tensor Routing::table_tensor(std::int64_t offset, std::int64_t count) const {
  return Tensor(TensorView(table_block_->data + offset, DType::kInt64, {count}), table_storage_);
}

Tensor Routing::expert_counts() const {
  return table_tensor(tables_.expert_counts, num_local_experts());
}

Tensor Routing::expert_offsets() const {
  return table_tensor(tables_.expert_offsets, num_local_experts() + 1);
}

Tensor Routing::sizes() const { return table_tensor(tables_.sizes, 3); }

}  // namespace core

Layout DispatchHandle::layout() const { return routing_->spec().layout; }
std::int64_t DispatchHandle::num_tokens() const { return routing_->spec().num_tokens; }
int DispatchHandle::topk() const { return routing_->spec().topk; }
int DispatchHandle::num_experts() const { return routing_->spec().experts.num_experts(); }
int DispatchHandle::num_local_experts() const { return routing_->num_local_experts(); }

}  // namespace ep
