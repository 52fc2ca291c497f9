// SPDX-License-Identifier: Apache-2.0
// Host time of a call before anything is launched: checks, memory of the pool, parameters. The
// engine queues nothing, so that what the driver takes is not in it (docs/tuning.md has both).
#include "core/combine_call.h"
#include "core/dispatch_call.h"
#include "core/group_state.h"
#include "fabric/host/arena.h"

#include <ep/bootstrap.h>

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace ep::bench {
namespace {

constexpr std::int64_t kTokens = 4096;
constexpr std::int64_t kHidden = 7168;
constexpr std::int64_t kTopk = 8;
constexpr std::int64_t kCapacity = 8192;

/// Accepts everything, as a GPU does when it queues.
class IdleEngine final : public core::Engine {
 public:
  bool is_synchronous() const override { return false; }
  Status begin(Stream /*stream*/) override { return {}; }
  void end() override {}
  bool is_capturing() const override { return false; }
  void retain(std::shared_ptr<const void> /*object*/) override {}
  Status launch(const intranode::DispatchParams& params, int, Stream /*stream*/) override {
    benchmark::DoNotOptimize(&params);
    return {};
  }
  Status launch(const intranode::CombineParams& params, int, Stream /*stream*/) override {
    benchmark::DoNotOptimize(&params);
    return {};
  }
  Status fill_zero(void* /*dst*/, std::int64_t, Stream /*stream*/) override { return {}; }
  Status upload(void* /*dst*/, const void* /*src*/, std::int64_t, Stream /*stream*/) override {
    return {};
  }
  Status wait(Stream /*stream*/) override { return {}; }
  Status read(void* /*dst*/, const void* /*src*/, std::int64_t) override { return {}; }
  Status write(void* /*dst*/, const void* /*src*/, std::int64_t) override { return {}; }
  Status check_memory(const void* /*address*/) const override { return {}; }
  bool needs_aligned_sums() const override { return true; }
  Stream own_stream() const override { return {}; }
  layout::OpReport& report() override { return report_; }
  int max_sms() const override { return 132; }
  int suggest_sms(const OpShape& /*shape*/) const override { return 16; }

 private:
  layout::OpReport report_;
};

void must(const Status& status) {
  if (status.ok()) return;
  std::fputs((status.to_string() + "\n").c_str(), stderr);
  std::abort();
}

/// A group of one rank: nothing a call does on the host depends on how many there are.
struct IdleGroup {
  std::unique_ptr<core::GroupState> state;
  std::vector<std::uint16_t> x = std::vector<std::uint16_t>(kTokens * 8);
  std::vector<std::int64_t> topk_idx = std::vector<std::int64_t>(kTokens * kTopk);
  std::vector<float> topk_weights = std::vector<float>(kTokens * kTopk);
  Tensor rows;

  IdleGroup() {
    auto bootstraps = make_in_process_bootstraps(1);
    must(bootstraps.status());
    GroupConfig config{.max_tokens = kTokens, .pool_bytes = std::int64_t{1} << 30};
    const auto resolved = core::resolve_config(config, 1);
    must(resolved.status());
    const auto layout = layout::make_control_layout(core::control_shape(resolved->config, 1));
    auto arena = fabric::HostArena::create(*bootstraps->front(), layout.total_bytes,
                                           base::Deadline::after(resolved->timeout));
    must(arena.status());
    state = std::make_unique<core::GroupState>(core::GroupState::Parts{
        .config = *resolved, .arena = std::move(*arena), .engine = std::make_unique<IdleEngine>()});
    must(state->pool().reserve(config.pool_bytes));
    auto tensor = state->allocate(DType::kBf16, {kCapacity, kHidden});
    must(tensor.status());
    rows = *tensor;
  }

  DispatchInput input() const {
    // Rows without extent: the input is never read.
    ConstTensorView tokens(rows.view());
    tokens.shape[0] = kTokens;
    return {.x = tokens,
            .topk_idx = {topk_idx.data(), DType::kInt64, {kTokens, kTopk}},
            .topk_weights = {topk_weights.data(), DType::kFp32, {kTokens, kTopk}}};
  }
  Result<DispatchOutput> dispatch(const DispatchOptions& options) const {
    return core::DispatchCall(*state, {.input = input(), .options = options}).run();
  }
};

void call_dispatch(benchmark::State& bench) {
  const IdleGroup group;
  const DispatchOptions options{.layout = static_cast<Layout>(bench.range(0)),
                                .capacity = kCapacity};
  for ([[maybe_unused]] auto _ : bench) {
    const auto output = group.dispatch(options);
    if (!output.ok()) must(output.status());
  }
}

/// Outputs that the caller keeps from call to call.
void call_dispatch_into_buffers(benchmark::State& bench) {
  const IdleGroup group;
  DispatchOptions options{.capacity = kCapacity};
  const auto first = group.dispatch(options);
  must(first.status());
  options.out = {.x = first->x, .topk_idx = first->topk_idx, .topk_weights = first->topk_weights};
  for ([[maybe_unused]] auto _ : bench) {
    const auto output = group.dispatch(options);
    if (!output.ok()) must(output.status());
  }
}

void call_combine(benchmark::State& bench) {
  const IdleGroup group;
  const auto dispatched = group.dispatch({.capacity = kCapacity});
  must(dispatched.status());
  const core::CombineRequest request{.handle = dispatched->handle,
                                     .input = {.rows = dispatched->x.view()}};
  for ([[maybe_unused]] auto _ : bench) {
    const auto output = core::CombineCall(*group.state, request).run();
    if (!output.ok()) must(output.status());
  }
}

/// Overwrites what the caches of the processor hold, as other work between two calls does.
class ColdCaches {
 public:
  void chill() {
    for (std::size_t at = 0; at < memory_.size(); at += kLine) memory_[at] += 1;
    benchmark::ClobberMemory();
  }

 private:
  static constexpr std::size_t kLine = 64;
  std::vector<std::uint8_t> memory_ = std::vector<std::uint8_t>(std::size_t{96} << 20);
};

/// Time of one call after other work.
template <class Call>
void time_cold(benchmark::State& bench, Call call) {
  ColdCaches caches;
  for ([[maybe_unused]] auto _ : bench) {
    caches.chill();
    const auto start = std::chrono::steady_clock::now();
    call();
    bench.SetIterationTime(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
}

void cold_dispatch(benchmark::State& bench) {
  const IdleGroup group;
  std::optional<DispatchOutput> last;
  time_cold(bench, [&] {
    auto output = group.dispatch({.capacity = kCapacity});
    must(output.status());
    last = std::move(*output);
  });
}

void cold_combine(benchmark::State& bench) {
  const IdleGroup group;
  const auto dispatched = group.dispatch({.capacity = kCapacity});
  must(dispatched.status());
  const core::CombineRequest request{.handle = dispatched->handle,
                                     .input = {.rows = dispatched->x.view()}};
  time_cold(bench, [&] { must(core::CombineCall(*group.state, request).run().status()); });
}

BENCHMARK(cold_dispatch)->UseManualTime()->Iterations(300);
BENCHMARK(cold_combine)->UseManualTime()->Iterations(300);
BENCHMARK(call_dispatch)
    ->ArgName("layout")
    ->Arg(static_cast<std::int64_t>(Layout::kFlat))
    ->Arg(static_cast<std::int64_t>(Layout::kExpertMajor));
BENCHMARK(call_dispatch_into_buffers);
BENCHMARK(call_combine);

}  // namespace
}  // namespace ep::bench

BENCHMARK_MAIN();
