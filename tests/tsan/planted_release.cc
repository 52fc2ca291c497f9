// SPDX-License-Identifier: Apache-2.0
// A dispatch and a combine between two ranks with one release weakened to relaxed (argv[1]): proof
// that ThreadSanitizer sees through the protocol. This program's launch functions replace the
// library's.
#include "intranode/host.h"
#include "intranode/host_launch.h"
#include "primitives/host_exec.h"

#include <ep/ep.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <string_view>
#include <thread>
#include <vector>

namespace ep::test {
namespace {

enum class Weakened { kNone, kAddReleaseSys, kStoreReleaseSys, kAddReleaseGpu };

Weakened& weakened() {
  static Weakened which = Weakened::kNone;
  return which;
}

/// HostMemory, except for the release that is weakened.
struct WeakMemory : primitives::HostMemory {
  template <class T>
  static void add_release_sys(T* address, T value) {
    if (weakened() == Weakened::kAddReleaseSys) return add_relaxed_gpu(address, value);
    primitives::HostMemory::add_release_sys(address, value);
  }
  template <class T>
  static void store_release_sys(T* address, T value) {
    if (weakened() == Weakened::kStoreReleaseSys) return store_relaxed_sys(address, value);
    primitives::HostMemory::store_release_sys(address, value);
  }
  template <class T>
  static void add_release_gpu(T* address, T value) {
    if (weakened() == Weakened::kAddReleaseGpu) return add_relaxed_gpu(address, value);
    primitives::HostMemory::add_release_gpu(address, value);
  }
};

struct WeakExec : primitives::HostExec {
  using Memory = WeakMemory;
};

constexpr int kRanks = 2;
constexpr std::int64_t kTokens = 96;
constexpr std::int64_t kHidden = 64;
constexpr std::int64_t kTopk = 2;
constexpr int kExperts = 4;

bool run_round(Group& group, const std::vector<float>& x, const std::vector<std::int32_t>& idx) {
  const ConstTensorView x_view(x.data(), DType::kFp32, {kTokens, kHidden});
  const ConstTensorView idx_view(idx.data(), DType::kInt32, {kTokens, kTopk});
  const Result<DispatchOutput> sent = dispatch(group, {.x = x_view, .topk_idx = idx_view});
  if (!sent.ok()) return false;
  // A caller reads its rows as soon as they are its own, and writes them once they are again.
  float* rows = sent->x.data<float>();
  const std::int64_t num_elems = sent->x.view().num_elems();
  if (std::accumulate(rows, rows + num_elems, 0.0F) <= 0.0F) return false;
  if (!combine(group, sent->handle, {.rows = sent->x.view()}, {.way = CombineWay::kPush}).ok()) {
    return false;
  }
  std::fill_n(rows, num_elems, 0.0F);
  return true;
}

void run_rank(Bootstrap& bootstrap) {
  // Two channels: roles of one rank meet across threads, too.
  const Result<std::unique_ptr<Group>> group =
      Group::create(bootstrap, {.max_tokens = kTokens,
                                .max_hidden_bytes = kHidden * 4,
                                .max_experts = kExperts,
                                .num_sms = 2});
  if (!group.ok()) return;
  const std::vector<float> x(kTokens * kHidden, 1.0F);
  std::vector<std::int32_t> idx;
  for (std::int32_t i = 0; i < kTokens * kTopk; ++i) idx.push_back(i % kExperts);
  constexpr int kRounds = 20;
  for (int round = 0; round < kRounds; ++round) {
    if (!run_round(**group, x, idx)) return;
  }
}

Weakened parse(std::string_view name) {
  if (name == "add_release_sys") return Weakened::kAddReleaseSys;
  if (name == "store_release_sys") return Weakened::kStoreReleaseSys;
  if (name == "add_release_gpu") return Weakened::kAddReleaseGpu;
  return Weakened::kNone;
}

}  // namespace
}  // namespace ep::test

namespace ep::intranode {

void launch_dispatch(fabric::HostLauncher& launcher,
                     const DispatchParams& params,
                     int num_channels) {
  launch_roles<test::WeakExec, DispatchParams, DispatchRole>(launcher, params, num_channels,
                                                             kDispatchBodies<test::WeakExec>);
}

void launch_combine(fabric::HostLauncher& launcher, const CombineParams& params, int num_channels) {
  launch_roles<test::WeakExec, CombineParams, CombineRole>(launcher, params, num_channels,
                                                           kCombineBodies<test::WeakExec>);
}

}  // namespace ep::intranode

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  ep::test::weakened() = ep::test::parse(argv[1]);
  auto bootstraps = ep::make_in_process_bootstraps(ep::test::kRanks);
  if (!bootstraps.ok()) return 2;
  std::vector<std::thread> ranks;
  for (const auto& bootstrap : *bootstraps) {
    ranks.emplace_back([&bootstrap] { ep::test::run_rank(*bootstrap); });
  }
  for (std::thread& rank : ranks) rank.join();
  std::puts("rounds done");
}
