// SPDX-License-Identifier: Apache-2.0
// A bulk engine that is as late as its contract allows, and notes every use against the contract.
#include "tests/primitives/bulk_model.h"

#include <algorithm>
#include <cstring>

namespace ep::test {
namespace {

// What a stage holds while a row is on its way.
constexpr std::byte kGarbage{0xEE};

}  // namespace

BulkModel::BulkModel(int num_stages, std::int64_t stage_bytes)
    : stages_(static_cast<std::size_t>(num_stages)) {
  for (Stage& stage : stages_) {
    stage.bytes.assign(static_cast<std::size_t>(stage_bytes), kGarbage);
  }
}

void BulkModel::note(const std::string& misuse, int stage) {
  misuses_.push_back(misuse + ", stage " + std::to_string(stage));
}

void BulkModel::load(int stage, const primitives::RowParts& parts) {
  Stage& loaded = stage_at(stage);
  if (must_fence_acquired_) note("load without fence_acquired()", stage);
  if (loaded.state == StageState::kLoading) note("load into a stage that is loading", stage);
  if (loaded.num_unread > 0) note("load into a stage that stores still read", stage);
  loaded.state = StageState::kLoading;
  loaded.parts = parts;
  std::fill(loaded.bytes.begin(), loaded.bytes.end(), kGarbage);
}

void BulkModel::wait_loaded(int stage) {
  Stage& loaded = stage_at(stage);
  if (loaded.state == StageState::kEmpty) note("wait for a load that nobody started", stage);
  if (loaded.state != StageState::kLoading) return;
  const primitives::RowParts& parts = loaded.parts;
  const auto tail = std::copy_n(parts.row, parts.row_bytes, loaded.bytes.begin());
  std::copy_n(parts.tail, parts.tail_bytes, tail);
  loaded.state = StageState::kLoaded;
}

void BulkModel::store(std::byte* dst, int stage, primitives::StageSlice slice) {
  if (must_fence_acquired_) note("store without fence_acquired()", stage);
  if (stage_at(stage).state != StageState::kLoaded) note("store before wait_loaded()", stage);
  ++stage_at(stage).num_unread;
  open_.stores.push_back(
      {dst, stage, slice.offset, std::vector<std::byte>(static_cast<std::size_t>(slice.bytes))});
  is_fenced_ = false;
}

void BulkModel::commit() {
  pending_.push_back(std::move(open_));
  open_ = {};
}

void BulkModel::read(Group& group) {
  if (group.is_read) return;
  group.is_read = true;
  for (Store& store : group.stores) {
    Stage& stage = stage_at(store.stage);
    std::copy_n(stage.bytes.begin() + store.offset, store.bytes.size(), store.bytes.begin());
    --stage.num_unread;
  }
}

void BulkModel::wait_read(int num_pending) {
  const auto num_groups = static_cast<int>(pending_.size());
  for (int i = 0; i < num_groups - num_pending; ++i) read(pending_[static_cast<std::size_t>(i)]);
}

void BulkModel::land(const Group& group) {
  for (const Store& store : group.stores) {
    std::memcpy(store.dst, store.bytes.data(), store.bytes.size());
  }
}

void BulkModel::wait_landed(int num_pending) {
  wait_read(num_pending);
  while (static_cast<int>(pending_.size()) > num_pending) {
    land(pending_.front());
    pending_.erase(pending_.begin());
  }
}

void BulkModel::wait_all() {
  if (!open_.stores.empty()) note("wait_all() before commit()", open_.stores.front().stage);
  wait_landed(0);
}

void BulkModel::release(int num_newest) {
  const auto num_covered = static_cast<int>(pending_.size()) - num_newest;
  for (int i = 0; i < num_covered; ++i) {
    const Group& group = pending_[static_cast<std::size_t>(i)];
    for (const Store& store : group.stores) note("release before a store landed", store.stage);
  }
  for (const Store& store : open_.stores) note("release before a store landed", store.stage);
  if (!is_fenced_) misuses_.emplace_back("release without fence()");
}

void BulkModel::end() {
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    const int stage = static_cast<int>(i);
    if (stages_[i].state == StageState::kLoading) note("a load outlives its stage", stage);
    if (stages_[i].num_unread > 0) note("a store outlives its stage", stage);
  }
}

}  // namespace ep::test
