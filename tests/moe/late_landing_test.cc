// SPDX-License-Identifier: Apache-2.0
// Dispatches over a copy engine that is as late as its contract allows, with the stages of a GPU's:
// rows land only when a lane waits for that. This program's launch functions replace the library's.
#include "intranode/host.h"
#include "intranode/host_launch.h"
#include "primitives/host_exec.h"
#include "tests/moe/sample_problems.h"
#include "tests/primitives/bulk_model.h"
#include "tests/support/moe_ops.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace ep::test {
namespace {

/// Uses against the contract, of all lanes.
class Misuses {
 public:
  void add(const std::vector<std::string>& misuses) {
    const std::lock_guard lock(mutex_);
    all_.insert(all_.end(), misuses.begin(), misuses.end());
  }
  std::vector<std::string> all() {
    const std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> all_;
};

Misuses& misuses() {
  static Misuses misuses;
  return misuses;
}

/// Row and scales of a test fit.
constexpr std::int64_t kStageBytes = 1 << 12;

/// A model that lives as long as its lane.
template <int kNumStages>
class LateBulk : public ModelBulk<kNumStages> {
 public:
  LateBulk() : LateBulk(make_model()) {}

 private:
  explicit LateBulk(std::shared_ptr<BulkModel> model)
      : ModelBulk<kNumStages>(*model), model_(std::move(model)) {}

  static std::shared_ptr<BulkModel> make_model() {
    return {new BulkModel(kNumStages, kStageBytes), [](BulkModel* model) {
              model->end();
              misuses().add(model->misuses());
              delete model;
            }};
  }

  std::shared_ptr<BulkModel> model_;
};

/// Whoever waits for a word acts on it before its writer goes on.
struct SlowWriterMemory : primitives::HostMemory {
  template <class T>
  static void store_release_sys(T* address, T value) {
    primitives::HostMemory::store_release_sys(address, value);
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
};

template <int kStages>
struct LateExec : primitives::HostExec {
  using Memory = SlowWriterMemory;
  using RowPipe = primitives::RowPipe<LateBulk<kStages>>;
  static RowPipe make_row_pipe(primitives::SoloGroup /*group*/,
                               const primitives::Lane& /*lane*/,
                               const primitives::OpParams& /*params*/) {
    return RowPipe(LateBulk<kStages>());
  }
};

/// Of the launches that follow.
int& num_stages() {
  static int stages = 1;
  return stages;
}

template <int kStages>
void launch(fabric::HostLauncher& launcher,
            const intranode::DispatchParams& params,
            int num_channels) {
  using Exec = LateExec<kStages>;
  intranode::launch_roles<Exec, intranode::DispatchParams, intranode::DispatchRole>(
      launcher, params, num_channels, intranode::kDispatchBodies<Exec>);
}

class LateLanding : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { num_stages() = GetParam(); }
  void TearDown() override { EXPECT_EQ(misuses().all(), std::vector<std::string>{}); }
};

INSTANTIATE_TEST_SUITE_P(Stages, LateLanding, ::testing::Values(1, 2, 5));

void dispatch_both_ways(RankContext& context, Group& group, const Oracle& oracle) {
  for (const CopyWay way : {CopyWay::kSender, CopyWay::kReceiver}) {
    poison_pool(context, group, 1 << 16);
    checked_dispatch(context, group, oracle, {.copy_way = way});
  }
}

TEST_P(LateLanding, RowsAndScalesAreThereWhenAChunkSaysSo) {
  std::vector<Problem> problems;
  for (const Layout layout : kLayouts) {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      problems.push_back(sample_problem(layout, 3, seed));
      set_row_format(problems.back(), DType::kBf16, 208);
      problems.back().num_scales = static_cast<int>(seed % 3) * 4;  // 16 bytes each, or none
    }
  }
  check_problems(problems, dispatch_both_ways);
}

TEST_P(LateLanding, ManyCopiesOfATokenAreThere) {
  const Routing routing = uniform_routing(2, 61, 32, 40, 9);
  check_problems(in_both_layouts(routing, 1), dispatch_both_ways);
}

TEST_P(LateLanding, GradientsAreScaledOnceTheyAreThere) {
  std::vector<Problem> problems{sample_problem(Layout::kExpertMajor, 3, 1),
                                sample_problem(Layout::kExpertMajor, 2, 2)};
  for (const Problem& problem : problems) {
    check_problem(problem, [oracle = Oracle(problem)](RankContext& context, Group& group) {
      const auto output = checked_dispatch(context, group, oracle);
      if (!output) return;
      const CombineSpec spec{.hidden = 64, .weighted = true};
      checked_combine_backward(context, group, oracle, output->handle, spec);
    });
  }
}

}  // namespace
}  // namespace ep::test

namespace ep::intranode {

void launch_dispatch(fabric::HostLauncher& launcher,
                     const DispatchParams& params,
                     int num_channels) {
  switch (test::num_stages()) {
    case 1:
      return test::launch<1>(launcher, params, num_channels);
    case 2:
      return test::launch<2>(launcher, params, num_channels);
    default:
      return test::launch<5>(launcher, params, num_channels);
  }
}

void launch_combine(fabric::HostLauncher& launcher, const CombineParams& params, int num_channels) {
  launch_roles<primitives::HostExec, CombineParams, CombineRole>(
      launcher, params, num_channels, kCombineBodies<primitives::HostExec>);
}

}  // namespace ep::intranode
