// SPDX-License-Identifier: Apache-2.0
// Memory, parameters and status of a group.
#include "core/group_state.h"

#include "base/check.h"
#include "base/log.h"
#include "core/fault_status.h"
#include "primitives/memory.h"

#include <algorithm>
#include <string>
#include <utility>

namespace ep::core {

GroupState::GroupState(Parts parts)
    : config_(parts.config.config),
      layout_(layout::make_control_layout(control_shape(config_, parts.arena->num_ranks()))),
      timeout_ns_(
          static_cast<std::uint64_t>(std::chrono::nanoseconds(parts.config.timeout).count())),
      share_(std::move(parts.share)),
      arena_(std::move(parts.arena)),
      rails_(std::move(parts.rails)),
      pool_(std::make_unique<fabric::Pool>(
          *arena_,
          fabric::PoolOptions{.growth_bytes = kPoolGrowthBytes, .timeout = parts.config.timeout})),
      engine_(std::move(parts.engine)),
      identity_(std::make_shared<const int>(0)) {}

Status GroupState::initialize() {
  const std::uint64_t last_epoch = config_.first_epoch - 1;
  return engine_->write(&control<layout::LocalState>(layout_.local)->epoch.value, &last_epoch,
                        sizeof(last_epoch));
}

Result<std::shared_ptr<fabric::Block>> GroupState::allocate_block(std::int64_t bytes) {
  if (!engine_->is_capturing()) return pool_->allocate(bytes);
  EP_TRY_ASSIGN(std::shared_ptr<fabric::Block> block, pool_->allocate_in_place(bytes));
  if (block == nullptr) {
    return Status(Errc::kOutOfMemory,
                  "the pool has no free block of " + std::to_string(bytes) +
                      " bytes and does not grow under stream capture; reserve(" +
                      std::to_string(bytes) + ") before");
  }
  engine_->retain(block);
  return block;
}

Result<std::shared_ptr<const ExpertTables>> GroupState::expert_tables(const ExpertMap& map,
                                                                      Stream stream) {
  if (engine_->is_synchronous()) return ExpertTables::of_host(map);
  if (std::shared_ptr<const ExpertTables> known = expert_tables_.find(map)) {
    engine_->retain(known);
    return known;
  }
  EP_TRY_ASSIGN(std::shared_ptr<fabric::Block> block, allocate_block(ExpertTables::bytes_of(map)));
  EP_TRY_ASSIGN(std::shared_ptr<const ExpertTables> tables,
                ExpertTables::upload(map, std::move(block), *engine_, stream));
  // What a graph uploads is not there before the graph runs.
  if (engine_->is_capturing()) {
    engine_->retain(tables);
  } else {
    expert_tables_.insert(tables);
  }
  return tables;
}

Result<Tensor> GroupState::allocate(DType dtype, std::initializer_list<std::int64_t> shape) {
  TensorView view(nullptr, dtype, shape);
  if (shape.size() < 1 || shape.size() > kMaxDims ||
      std::any_of(shape.begin(), shape.end(), [](auto d) { return d < 0; })) {
    return Status(Errc::kInvalidArgument,
                  "allocate: " + to_string(view) + ": need 1 to 3 dimensions, none negative");
  }
  EP_TRY_ASSIGN(std::shared_ptr<fabric::Block> block,
                allocate_block(view.num_elems() * size_of(dtype)));
  view.data = block->data;
  return Tensor(view, std::make_shared<Storage>(std::move(block)));
}

primitives::OpParams GroupState::op_params() const {
  primitives::OpParams params;
  const fabric::Arena::RoleView view = arena_->role_view();
  params.peer_table = view.peer_table;
  params.own = arena_->base(rank(), 0);
  for (int peer = 0; peer < std::min(num_ranks(), primitives::OpParams::kNumBases); ++peer)
    params.bases[peer] = arena_->base(peer, 0);
  params.gone_flags = view.gone_flags;
  params.board = params.own;
  params.num_peers = num_ranks();
  if (rails_ != nullptr) {
    params.first_peer = rails_->first_peer();
    params.num_peers = rails_->num_peers();
    params.host_of = rails_->host_of();
  }
  params.layout = layout_;
  params.rank = rank();
  params.timeout_ns = timeout_ns_;
  params.report = &engine_->report();
  params.ctas_by_sm = ctas_by_sm_;
  return params;
}

int GroupState::num_channels(const std::optional<int>& of_call, const OpShape& shape) const {
  const int chosen = of_call.value_or(config_.num_sms.value_or(SmBudget::process_default()));
  if (chosen == 0) {
    OpShape own = shape;
    own.num_ranks = num_ranks();
    own.backend = config_.backend;
    const int suggested = std::min(engine_->suggest_sms(own), engine_->max_sms());
    return share_ ? std::min(suggested, share_->num_sms()) : suggested;
  }
  const int num_sms = std::min(chosen, engine_->max_sms());
  // Other groups are counted only by those who ask for more than their own.
  return share_ && num_sms > share_->num_sms() ? std::min(num_sms, share_->limit()) : num_sms;
}

Status GroupState::check_num_sms(const std::optional<int>& of_call) const {
  if (!of_call) return Status();
  if (*of_call < 1 || *of_call > SmBudget::kMaxSms) {
    return Status(Errc::kInvalidArgument,
                  std::to_string(*of_call) + ", need 1 to " + std::to_string(SmBudget::kMaxSms));
  }
  const int num_sms = std::min(*of_call, engine_->max_sms());
  if (!share_ || num_sms <= share_->num_sms() || num_sms <= share_->limit()) return Status();
  return Status(Errc::kInvalidArgument, std::to_string(*of_call) + ": " + share_->describe());
}

Status GroupState::first_failure() const { return fault_status(*this); }

void GroupState::note_refusal() {
  const layout::OpReport& report = engine_->report();
  // [sync:report] acquire: the reason. Released in report_refusal.
  const std::uint64_t epoch = primitives::HostMemory::load_acquire_sys(&report.refused_epoch);
  if (epoch == noticed_epoch_) return;
  noticed_epoch_ = epoch;
  untaken_refusal_ = rejection_status(report, rank());
  base::log(LogLevel::kError, rank(), untaken_refusal_.message());
}

bool GroupState::is_refused(std::uint64_t call) {
  const layout::OpReport& report = engine_->report();
  // [sync:report] acquire: the reason. Released in report_refusal.
  const std::uint64_t epoch = primitives::HostMemory::load_acquire_sys(&report.refused_epoch);
  if (epoch == 0 || report.call != call) return false;
  noticed_epoch_ = epoch;
  return true;
}

Status GroupState::take_status() {
  EP_TRY(first_failure());
  note_refusal();
  return std::exchange(untaken_refusal_, Status());
}

Status GroupState::check_usable() {
  note_refusal();
  Status failure = first_failure();
  if (failure.ok()) return failure;
  return Status(Errc::kAborted, "the group failed earlier: " + failure.message())
      .set_peer(failure.peer());
}

}  // namespace ep::core
