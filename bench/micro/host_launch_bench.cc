// SPDX-License-Identifier: Apache-2.0
// What it costs to run the roles of an operation as fibers of one thread, or as a thread each;
// docs/adr/0004 has figures.

#include "fabric/host/fibers.h"
#include "fabric/host/launcher.h"
#include "primitives/relax.h"

#include <benchmark/benchmark.h>

#include <atomic>
#include <cstdint>
#include <vector>

namespace ep::bench {
namespace {

using fabric::FiberSet;
using fabric::HostLauncher;

/// The roles of an expert-major dispatch: route, send, pad, copy.
constexpr int kNumRoles = 4;

enum class Placement : std::int64_t { kFibers, kThreads };

/// Each role waits for the one after it, which on one thread has its turn later: the most switches.
/// `word` counts the roles that have ended.
std::vector<HostLauncher::Role> chained_roles(std::atomic<int>& word) {
  std::vector<HostLauncher::Role> roles;
  for (int num_before = kNumRoles - 1; num_before >= 0; --num_before) {
    roles.emplace_back([&word, num_before](const primitives::Lane&) {
      for (int polls = 1; word.load(std::memory_order_acquire) != num_before; ++polls) {
        primitives::relax(polls);
      }
      word.store(num_before + 1, std::memory_order_release);
    });
  }
  return roles;
}

/// One role that takes the place in the chain which its channel gives it.
HostLauncher::Role role_of_channel(const std::vector<HostLauncher::Role>& roles) {
  return [&roles](const primitives::Lane& lane) {
    roles[static_cast<std::size_t>(lane.channel)](lane);
  };
}

/// Launch, four roles that wait for each other, end.
void launch_chain(benchmark::State& state) {
  std::atomic<int> word{0};
  const std::vector<HostLauncher::Role> roles = chained_roles(word);
  const std::vector<HostLauncher::Role> threads = {role_of_channel(roles)};
  const bool is_fibers = static_cast<Placement>(state.range(0)) == Placement::kFibers;
  HostLauncher launcher;
  for ([[maybe_unused]] auto _ : state) {
    word.store(0, std::memory_order_relaxed);
    if (is_fibers) {
      launcher.run({.num_channels = 1, .roles = roles});
    } else {
      launcher.run({.num_channels = kNumRoles, .roles = threads});
    }
  }
}

/// Launch of roles that return at once: channels, roles per channel.
void launch_empty(benchmark::State& state) {
  const std::vector<HostLauncher::Role> roles(static_cast<std::size_t>(state.range(1)),
                                              [](const primitives::Lane&) {});
  HostLauncher launcher;
  for ([[maybe_unused]] auto _ : state) {
    launcher.run({.num_channels = static_cast<int>(state.range(0)), .roles = roles});
  }
}

/// One hand-over between two roles of a thread.
void fiber_switch(benchmark::State& state) {
  constexpr int kSwitches = 1000;
  FiberSet fibers;
  const auto hand_over = [&fibers] {
    for (int i = 0; i < kSwitches; ++i) fibers.yield(1);
  };
  const std::vector<FiberSet::Task> tasks(2, hand_over);
  for ([[maybe_unused]] auto _ : state) fibers.run(tasks);
  state.SetItemsProcessed(state.iterations() * kSwitches * 2);
}

BENCHMARK(fiber_switch)->UseRealTime();
BENCHMARK(launch_empty)
    ->ArgNames({"channels", "roles"})
    ->ArgsProduct({{1, 2, 4}, {1, kNumRoles}})
    ->UseRealTime();
BENCHMARK(launch_chain)
    ->ArgName("threads")
    ->Arg(static_cast<std::int64_t>(Placement::kFibers))
    ->Arg(static_cast<std::int64_t>(Placement::kThreads))
    ->UseRealTime();

}  // namespace
}  // namespace ep::bench

BENCHMARK_MAIN();
