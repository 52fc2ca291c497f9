// SPDX-License-Identifier: Apache-2.0
// The process default of the SM budget, and the suggestions.
#include "base/env.h"
#include "base/log.h"
#include "core/sm_curve.h"

#include <ep/sm_budget.h>

#include <algorithm>
#include <atomic>
#include <sched.h>
#include <string>

namespace ep {
namespace {

// Waking a second thread costs 5 to 50 us (bench/README.md); below this many bytes of rows one
// channel is faster.
constexpr std::int64_t kBytesForSecondChannel = 4 << 20;
constexpr int kUnset = -1;

std::atomic<int>& default_budget() {
  static std::atomic<int> budget{kUnset};
  return budget;
}

int budget_from_environment() {
  const Result<std::optional<std::int64_t>> value =
      base::env_int(base::EnvVar::kNumSms, {1, SmBudget::kMaxSms});
  if (value.ok()) return static_cast<int>(value->value_or(0));
  base::log(LogLevel::kWarn, value.status().message() + "; ignored");
  return 0;
}

int suggest_channels(const OpShape& shape) {
  const std::int64_t row_bytes =
      shape.num_tokens * shape.hidden_bytes * std::min(shape.topk, shape.num_ranks);
  if (row_bytes < kBytesForSecondChannel) return 1;
  cpu_set_t processors;
  CPU_ZERO(&processors);
  const int num_processors =
      sched_getaffinity(0, sizeof(processors), &processors) == 0 ? CPU_COUNT(&processors) : 1;
  return std::clamp(num_processors / std::max(shape.num_ranks, 1), 1, SmBudget::kMaxSms);
}

}  // namespace

int SmBudget::process_default() {
  int budget = default_budget().load(std::memory_order_relaxed);
  if (budget != kUnset) return budget;
  const int from_environment = budget_from_environment();
  // Whoever comes first wins; set_process_default() between load and here is kept.
  default_budget().compare_exchange_strong(budget, from_environment, std::memory_order_relaxed);
  return default_budget().load(std::memory_order_relaxed);
}

Status SmBudget::set_process_default(int num_sms) {
  if (num_sms < 0 || num_sms > kMaxSms) {
    return Status(Errc::kInvalidArgument, "num_sms = " + std::to_string(num_sms) + ", need 0 to " +
                                              std::to_string(kMaxSms));
  }
  default_budget().store(num_sms, std::memory_order_relaxed);
  return Status();
}

int suggest_num_sms(const OpShape& shape) {
  return shape.backend == Backend::kCuda ? core::measured_budget(shape) : suggest_channels(shape);
}

}  // namespace ep
