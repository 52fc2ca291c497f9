// SPDX-License-Identifier: Apache-2.0
// Making the engines is collective, hence the threads.
#include "tests/fabric/net/engine_group.h"

#include "base/check.h"
#include "fabric/net/local_transport.h"
#include "tests/support/test_scale.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace ep::test {
namespace {

constexpr std::chrono::milliseconds kPatience{60'000 * kSanitizerSlowdown};

}  // namespace

const char* name_of(fabric::ArrivalOrder order) {
  return order == fabric::ArrivalOrder::kOrdered ? "ordered" : "unordered";
}

EngineGroup::EngineGroup(const EngineGroupOptions& options)
    : engines_(static_cast<std::size_t>(options.num_ranks)),
      statuses_(static_cast<std::size_t>(options.num_ranks)) {
  auto bootstraps = make_in_process_bootstraps(options.num_ranks);
  auto transports = fabric::make_local_transports(options.num_ranks, options.traits);
  EP_CHECK(bootstraps.ok() && transports.ok());
  transports_ = std::move(*transports);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    memories_.emplace_back(static_cast<std::size_t>(options.window_bytes));
  }
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto at = static_cast<std::size_t>(rank);
      statuses_[at] = make(rank, *(*bootstraps)[at], options);
    });
  }
}

Status EngineGroup::make(int rank, Bootstrap& bootstrap, const EngineGroupOptions& options) {
  const auto at = static_cast<std::size_t>(rank);
  const auto deadline = base::Deadline::after(kPatience);
  const fabric::NetConfig config = options.config_of ? options.config_of(rank) : options.config;
  std::unique_ptr<fabric::Transport> transport = std::move(transports_[at]);
  if (options.wrap) transport = options.wrap(std::move(transport));
  EP_TRY_ASSIGN(engines_[at],
                fabric::NetEngine::create(bootstrap, std::move(transport), config, deadline));
  EP_TRY_ASSIGN(const fabric::WindowId window,
                engines_[at]->add_window(bootstrap, memories_[at], deadline));
  EP_CHECK(window == 0);
  return {};
}

bool EngineGroup::is_fine() const {
  return std::all_of(statuses_.begin(), statuses_.end(),
                     [](const Status& status) { return status.ok(); });
}

std::span<std::uint64_t> EngineGroup::words(int rank) {
  const std::span<std::byte> bytes = memory(rank);
  return {reinterpret_cast<std::uint64_t*>(bytes.data()), bytes.size() / sizeof(std::uint64_t)};
}

void EngineGroup::drive() {
  for (const auto& engine : engines_) {
    if (engine == nullptr) continue;
    for (int context = 0; context < engine->num_contexts(); ++context) engine->progress(context);
  }
}

bool EngineGroup::drive_until(const std::function<bool()>& is_done, int max_rounds) {
  for (int round = 0; round < max_rounds; ++round) {
    if (is_done()) return true;
    drive();
  }
  return is_done();
}

}  // namespace ep::test
