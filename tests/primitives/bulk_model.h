// SPDX-License-Identifier: Apache-2.0
// A bulk engine that is as late as its contract allows, and notes every use against the contract.
#pragma once

#include "primitives/row_pipe.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ep::test {

/// What primitives/row_pipe.h says about each call. A loaded row shows up when it is waited for, a
/// store reads its stage when that is waited for, and lands when all are.
class BulkModel {
 public:
  BulkModel(int num_stages, std::int64_t stage_bytes);

  void load(int stage, const primitives::RowParts& parts);
  void wait_loaded(int stage);
  void store(std::byte* dst, int stage, primitives::StageSlice slice);
  void commit();
  void wait_read(int num_pending);
  void wait_landed(int num_pending);
  void wait_all();
  void fence() { is_fenced_ = true; }
  void fence_acquired() { must_fence_acquired_ = false; }

  /// The lane tells a peer that its rows are there, the newest groups of stores excepted.
  void release(int num_newest);
  /// The lane learned that a peer's rows are there.
  void acquire() { must_fence_acquired_ = true; }
  /// The memory of the stages goes.
  void end();

  const std::vector<std::string>& misuses() const { return misuses_; }

 private:
  enum class StageState { kEmpty, kLoading, kLoaded };
  struct Stage {
    StageState state = StageState::kEmpty;
    primitives::RowParts parts{};
    int num_unread = 0;  // stores that have not read it yet
    std::vector<std::byte> bytes{};
  };
  struct Store {
    std::byte* dst;
    int stage;
    std::int64_t offset;
    std::vector<std::byte> bytes;
  };
  struct Group {
    std::vector<Store> stores{};
    bool is_read = false;
  };

  Stage& stage_at(int stage) { return stages_[static_cast<std::size_t>(stage)]; }
  void note(const std::string& misuse, int stage);
  static void land(const Group& group);
  void read(Group& group);

  std::vector<Stage> stages_;
  Group open_;                  // stores since the last commit
  std::vector<Group> pending_;  // committed, not landed; oldest first
  bool is_fenced_ = true;
  bool must_fence_acquired_ = false;
  std::vector<std::string> misuses_;
};

/// A step that a pipe could forget, or take too lightly.
enum class Flaw {
  kNone,
  kReadsOneGroupLess,
  kForgetsWaitRead,
  kForgetsWaitLoaded,
  kForgetsCommit,
  kForgetsWaitLanded,
  kLandsOneGroupLess,
  kForgetsWaitAll,
  kForgetsFence,
  kForgetsFenceAcquired,
};

/// The engine over a model, weakened in one place.
template <int kNumStages, Flaw kFlaw = Flaw::kNone>
class ModelBulk {
 public:
  static constexpr int kStages = kNumStages;

  explicit ModelBulk(BulkModel& model) : model_(&model) {}

  void load(int stage, const primitives::RowParts& parts) { model_->load(stage, parts); }
  void wait_loaded(int stage) {
    if constexpr (kFlaw != Flaw::kForgetsWaitLoaded) model_->wait_loaded(stage);
  }
  void store(std::byte* dst, int stage, primitives::StageSlice slice) {
    model_->store(dst, stage, slice);
  }
  void commit() {
    if constexpr (kFlaw != Flaw::kForgetsCommit) model_->commit();
  }
  template <int kPending>
  void wait_read() {
    if constexpr (kFlaw == Flaw::kReadsOneGroupLess) {
      model_->wait_read(kPending + 1);
    } else if constexpr (kFlaw != Flaw::kForgetsWaitRead) {
      model_->wait_read(kPending);
    }
  }
  template <int kPending>
  void wait_landed() {
    if constexpr (kFlaw == Flaw::kLandsOneGroupLess) {
      model_->wait_landed(kPending + 1);
    } else if constexpr (kFlaw != Flaw::kForgetsWaitLanded) {
      model_->wait_landed(kPending);
    }
  }
  void wait_all() {
    if constexpr (kFlaw != Flaw::kForgetsWaitAll) model_->wait_all();
  }
  void fence() {
    if constexpr (kFlaw != Flaw::kForgetsFence) model_->fence();
  }
  void fence_acquired() {
    if constexpr (kFlaw != Flaw::kForgetsFenceAcquired) model_->fence_acquired();
  }

 private:
  BulkModel* model_;
};
static_assert(primitives::BulkEngine<ModelBulk<4>>);

}  // namespace ep::test
