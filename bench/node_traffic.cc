// SPDX-License-Identifier: Apache-2.0
// Predicts every step once and multiplies by how often it was timed.
#include "bench/node_traffic.h"

#include "base/check.h"
#include "bench/buffer_plan.h"
#include "bench/model.h"

#include <algorithm>
#include <cstdint>
#include <memory>

namespace ep::bench {
namespace {

using Traffic = std::vector<RankTraffic<std::int64_t>>;

/// Steps take turns, beginning with the first.
class TimedSteps {
 public:
  TimedSteps(const Job& job, const Routing& routing)
      : num_iters_(job.options.iters),
        num_steps_(routing.num_recorded_steps().value_or(plan_buffers(job).num_sets)) {}

  int num_steps() const { return std::min(num_steps_, num_iters_); }
  int times(int step) const { return (num_iters_ - step + num_steps_ - 1) / num_steps_; }

 private:
  int num_iters_;
  int num_steps_;
};

std::int64_t num_timed_tokens(const Job& job, const Routing& routing) {
  const TimedSteps steps(job, routing);
  std::int64_t sum = 0;
  for (int step = 0; step < steps.num_steps(); ++step) {
    for (int rank = 0; rank < job.options.ranks; ++rank) {
      sum += steps.times(step) * routing.num_tokens(step, rank);
    }
  }
  return sum;
}

Result<Traffic> predict_timed(const Job& job, Routing& routing, Movement movement) {
  const TimedSteps steps(job, routing);
  Traffic sums(static_cast<std::size_t>(job.options.ranks));
  for (int step = 0; step < steps.num_steps(); ++step) {
    EP_TRY_ASSIGN(const Traffic once, predict_step(job, routing, step, movement));
    for (int i = 0; i < steps.times(step); ++i) {
      for (std::size_t rank = 0; rank < sums.size(); ++rank) sums[rank] += once[rank];
    }
  }
  return sums;
}

std::vector<CountedTraffic> counted(const std::vector<RankResult>& ranks,
                                    PutCounts RankResult::*puts) {
  std::vector<CountedTraffic> all(ranks.size());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const PutCounts& own = ranks[rank].*puts;
    all[rank].sent = {.bytes = own.bytes, .puts = own.puts, .signals = own.signals};
  }
  return all;
}

Status add_comparison(const Job& job,
                      Movement movement,
                      const std::vector<CountedTraffic>& counts,
                      OpSummary& op) {
  const std::unique_ptr<Routing> routing = job.make_routing();
  const auto num_tokens = static_cast<double>(num_timed_tokens(job, *routing));
  std::int64_t bytes = 0;
  for (const CountedTraffic& rank : counts) bytes += rank.sent->bytes;
  if (num_tokens > 0) op.net_bytes_per_token = static_cast<double>(bytes) / num_tokens;
  // Rows that a capacity leaves out are not counted by the model.
  if (job.options.capacity.kind == Capacity::Kind::kRows) return {};
  EP_TRY_ASSIGN(const Traffic predicted, predict_timed(job, *routing, movement));
  EP_TRY_ASSIGN(op.traffic, compare_traffic(predicted, counts));
  if (num_tokens > 0) {
    op.predicted_net_bytes_per_token =
        static_cast<double>(op.traffic->predicted.bytes) / num_tokens;
  }
  return {};
}

}  // namespace

Status add_node_traffic(const Job& job, const std::vector<RankResult>& ranks, Summary& summary) {
  if (!has_nodes(job.options)) return {};
  for (OpSummary& op : summary.ops) {
    const bool is_dispatch = op.name == name_of(Command::kDispatch);
    if (!is_dispatch && op.name != name_of(Command::kCombine)) continue;
    const Movement movement = is_dispatch ? Movement::kDispatch : Movement::kCombine;
    const auto puts = is_dispatch ? &RankResult::dispatch_puts : &RankResult::combine_puts;
    EP_TRY(add_comparison(job, movement, counted(ranks, puts), op));
  }
  return {};
}

}  // namespace ep::bench
