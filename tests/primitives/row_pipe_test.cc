// SPDX-License-Identifier: Apache-2.0
// RowPipe over engines with several stages: rows arrive, and no stage is reused too early.
#include "primitives/row_pipe.h"

#include "tests/primitives/bulk_model.h"
#include "tests/support/payload.h"
#include "tests/support/problem.h"
#include "tests/support/property.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ep::test {
namespace {

constexpr std::int64_t kRowBytes = 3 * kBlockBytes;

/// Rows that a release leaves out where the lane does not drain.
constexpr int kNewest = 2;

/// One lane's work.
struct Work {
  std::vector<int> num_stores{};    ///< per row
  std::int64_t rows_per_drain = 8;  ///< the lane tells its peers after so many rows
  bool drains = true;               ///< else the release leaves out the newest kNewest rows
  int prefetch_percent = 100;       ///< how full the pipe is kept
  std::uint64_t seed = 1;
};

/// Moves rows as SendLane does: load ahead, store each row to its places, drain, release.
template <class Bulk>
class Mover {
 public:
  explicit Mover(const Work& work)
      : work_(work),
        random_(work.seed),
        src_(num_rows() * kRowBytes),
        model_(Bulk::kStages, kRowBytes) {
    std::int64_t num_places = 0;
    for (const int num_stores : work.num_stores) num_places += num_stores;
    dst_.resize(static_cast<std::size_t>(num_places * kRowBytes));
    for (std::int64_t row = 0; row < num_rows(); ++row) fill_row(src_row(row), {.token = row});
  }

  void run() {
    {
      primitives::RowPipe<Bulk> pipe{Bulk(model_)};
      model_.acquire();
      pipe.fence_acquired();
      prefetch(pipe);
      for (std::int64_t row = 0; row < num_rows(); ++row) {
        if (pipe.is_empty()) load_next(pipe);
        move_row(pipe, row);
        prefetch(pipe);
      }
      pipe.drain();
      model_.release(0);
    }
    model_.end();
  }

  const std::vector<std::string>& misuses() const { return model_.misuses(); }
  bool numbers_are_right() const { return numbers_are_right_; }

  /// What is wrong with the rows that were stored; empty if nothing.
  std::string mismatch() const {
    std::size_t place = 0;
    for (std::int64_t row = 0; row < num_rows(); ++row) {
      for (int i = 0; i < num_stores(row); ++i, ++place) {
        const std::byte* stored = dst_.data() + place * kRowBytes;
        const std::string wrong = row_mismatch({stored, kRowBytes}, {.token = row});
        if (!wrong.empty()) return "row " + std::to_string(row) + ": " + wrong;
      }
    }
    return {};
  }

 private:
  std::int64_t num_rows() const { return static_cast<std::int64_t>(work_.num_stores.size()); }
  int num_stores(std::int64_t row) const { return work_.num_stores[static_cast<std::size_t>(row)]; }
  std::span<std::byte> src_row(std::int64_t row) {
    return {src_.data() + row * kRowBytes, static_cast<std::size_t>(kRowBytes)};
  }

  void load_next(primitives::RowPipe<Bulk>& pipe) {
    const std::byte* row = src_row(num_loaded_).data();
    // A stage holds the same bytes whether or not a part of them is the tail.
    pipe.load(num_loaded_, num_loaded_ % 2 == 0
                               ? primitives::RowParts{row, kRowBytes}
                               : primitives::RowParts{row, kBlockBytes, row + kBlockBytes,
                                                      kRowBytes - kBlockBytes});
    ++num_loaded_;
  }
  void prefetch(primitives::RowPipe<Bulk>& pipe) {
    while (!pipe.is_full() && num_loaded_ < num_rows() && chance(random_, work_.prefetch_percent)) {
      load_next(pipe);
    }
  }
  void move_row(primitives::RowPipe<Bulk>& pipe, std::int64_t row) {
    if (pipe.wait_front() != row) numbers_are_right_ = false;
    for (int i = 0; i < num_stores(row); ++i, ++num_stored_) {
      std::byte* dst = dst_.data() + num_stored_ * kRowBytes;
      pipe.store(dst, {0, kBlockBytes});
      pipe.store(dst + kBlockBytes, {kBlockBytes, kRowBytes - kBlockBytes});
    }
    pipe.retire();
    if ((row + 1) % work_.rows_per_drain != 0) return;
    if (work_.drains) {
      pipe.drain();
      model_.release(0);
    } else {
      pipe.template await_landed<kNewest>();
      model_.release(kNewest);
    }
  }

  Work work_;
  Random random_;
  std::vector<std::byte> src_;
  std::vector<std::byte> dst_;
  BulkModel model_;
  std::int64_t num_loaded_ = 0;
  std::int64_t num_stored_ = 0;
  bool numbers_are_right_ = true;
};

Work steady_work() { return {.num_stores = std::vector<int>(40, 2)}; }
Work overlapped_work() { return {.num_stores = std::vector<int>(40, 2), .drains = false}; }

Work arbitrary_work() {
  return {.num_stores = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 4)),
          .rows_per_drain = *rc::gen::inRange<std::int64_t>(1, 12),
          .drains = *rc::gen::arbitrary<bool>(),
          .prefetch_percent = *rc::gen::element(100, 70, 30, 0),
          .seed = *rc::gen::arbitrary<std::uint64_t>()};
}

template <int kStages>
void check_any_work() {
  check_property(scaled_rounds(300, 20'000), 17, [] {
    Mover<ModelBulk<kStages>> mover(arbitrary_work());
    mover.run();
    RC_ASSERT(mover.misuses() == std::vector<std::string>{});
    RC_ASSERT(mover.mismatch() == std::string{});
    RC_ASSERT(mover.numbers_are_right());
  });
}

TEST(RowPipe, MovesAnyRowsWithOneStage) { check_any_work<1>(); }
TEST(RowPipe, MovesAnyRowsWithTwoStages) { check_any_work<2>(); }
TEST(RowPipe, MovesAnyRowsWithThreeStages) { check_any_work<3>(); }
TEST(RowPipe, MovesAnyRowsWithFourStages) { check_any_work<4>(); }
TEST(RowPipe, MovesAnyRowsWithSevenStages) { check_any_work<7>(); }
TEST(RowPipe, MovesAnyRowsWithEightStages) { check_any_work<8>(); }

TEST(RowPipe, KeepsHalfOfTheStagesLoading) {
  const std::vector<std::byte> row(kRowBytes);
  BulkModel model(6, kRowBytes);
  primitives::RowPipe<ModelBulk<6>> pipe{ModelBulk<6>(model)};
  for (int loaded = 0; loaded < 3; ++loaded) {
    EXPECT_FALSE(pipe.is_full());
    pipe.load(loaded, {row.data(), kRowBytes});
  }
  EXPECT_TRUE(pipe.is_full());
}

TEST(RowPipe, LeavesNoCopyUnderWayWhereALaneGivesUp) {
  const std::vector<std::byte> row(kRowBytes);
  std::vector<std::byte> place(kRowBytes);
  BulkModel model(4, kRowBytes);
  {
    primitives::RowPipe<ModelBulk<4>> pipe{ModelBulk<4>(model)};
    pipe.load(0, {row.data(), kRowBytes});
    pipe.load(1, {row.data(), kRowBytes});
    pipe.wait_front();
    pipe.store(place.data(), {0, kRowBytes});
  }
  model.end();
  EXPECT_EQ(model.misuses(), std::vector<std::string>{});
}

/// The first misuse of a pipe whose engine forgets something.
template <int kStages, Flaw kFlaw>
std::string first_misuse(const Work& work) {
  Mover<ModelBulk<kStages, kFlaw>> mover(work);
  mover.run();
  return mover.misuses().empty() ? "nothing noticed" : mover.misuses().front();
}

/// As above, for every number of stages.
template <Flaw kFlaw>
void expect_misuse(const std::string& expected, const Work& work = steady_work()) {
  EXPECT_EQ((first_misuse<1, kFlaw>(work)).substr(0, expected.size()), expected);
  EXPECT_EQ((first_misuse<2, kFlaw>(work)).substr(0, expected.size()), expected);
  EXPECT_EQ((first_misuse<3, kFlaw>(work)).substr(0, expected.size()), expected);
  EXPECT_EQ((first_misuse<8, kFlaw>(work)).substr(0, expected.size()), expected);
}

TEST(BulkModel, NoticesAStageThatIsLoadedOneGroupTooEarly) {
  expect_misuse<Flaw::kReadsOneGroupLess>("load into a stage that stores still read");
}

TEST(BulkModel, NoticesAForgottenWaitRead) {
  expect_misuse<Flaw::kForgetsWaitRead>("load into a stage that stores still read");
}

TEST(BulkModel, NoticesAForgottenWaitLoaded) {
  expect_misuse<Flaw::kForgetsWaitLoaded>("store before wait_loaded()");
}

TEST(BulkModel, NoticesAForgottenCommit) {
  expect_misuse<Flaw::kForgetsCommit>("load into a stage that stores still read");
}

TEST(BulkModel, NoticesAForgottenWaitAll) {
  expect_misuse<Flaw::kForgetsWaitAll>("release before a store landed");
}

TEST(BulkModel, NoticesAForgottenWaitLanded) {
  expect_misuse<Flaw::kForgetsWaitLanded>("release before a store landed", overlapped_work());
}

TEST(BulkModel, NoticesAGroupThatIsReleasedTooEarly) {
  expect_misuse<Flaw::kLandsOneGroupLess>("release before a store landed", overlapped_work());
}

TEST(BulkModel, NoticesAForgottenFence) {
  expect_misuse<Flaw::kForgetsFence>("release without fence()");
}

TEST(BulkModel, NoticesAForgottenFenceAfterAnAcquire) {
  expect_misuse<Flaw::kForgetsFenceAcquired>("load without fence_acquired()");
}

}  // namespace
}  // namespace ep::test
