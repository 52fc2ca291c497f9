// SPDX-License-Identifier: Apache-2.0
// All ranks of a dispatch up to the point where rows would move: their routing tables.
#include "tests/layout/routed_ranks.h"

#include "intranode/dispatch_resolve.h"
#include "intranode/routing_steps.h"

#include <algorithm>
#include <limits>

namespace ep::test {
namespace {

using primitives::HostExec;
using primitives::SoloGroup;

// What a rank with exact sizes announces: it keeps all.
constexpr std::int64_t kAllRows = std::numeric_limits<std::int32_t>::max();

layout::ControlShape control_shape(const Problem& problem) {
  std::int64_t max_tokens = 0;
  for (const RankTokens& rank : problem.routing.ranks) {
    max_tokens = std::max(max_tokens, rank.num_tokens);
  }
  return {.num_ranks = problem.routing.num_ranks(),
          .max_tokens = max_tokens,
          .max_experts = problem.routing.num_experts()};
}

}  // namespace

RoutedRanks::RoutedRanks(const Oracle& oracle, int lanes_per_rank)
    : lanes_per_rank_(lanes_per_rank), window_(control_shape(oracle.problem())) {
  const Routing& routing = oracle.problem().routing;
  for (int expert = 0; expert < routing.num_experts(); ++expert) {
    rank_of_.push_back(oracle.owner_of(expert));
    local_of_.push_back(oracle.local_of(expert));
  }
  for (int rank = 0; rank < routing.num_ranks(); ++rank) {
    params_.push_back(make_params(oracle, rank));
  }
  std::vector<fabric::FiberSet::Task> lanes;
  for (const intranode::DispatchParams& params : params_) {
    for (int lane = 0; lane < lanes_per_rank; ++lane) {
      lanes.emplace_back([this, &params] { route(params); });
    }
  }
  static thread_local fabric::FiberSet fibers;
  fibers.run(lanes);
}

intranode::DispatchParams RoutedRanks::make_params(const Oracle& oracle, int rank) {
  const Problem& problem = oracle.problem();
  const RankTokens& tokens = problem.routing.ranks[static_cast<std::size_t>(rank)];
  intranode::DispatchParams params;
  params.op = window_.params(rank);
  params.op.announcement[layout::OpField::kNumTokens] =
      static_cast<std::uint32_t>(tokens.num_tokens);
  params.routing.tables =
      layout::make_table_layout({.num_ranks = problem.routing.num_ranks(),
                                 .num_experts = problem.routing.num_experts(),
                                 .num_tokens = tokens.num_tokens,
                                 .topk = problem.routing.topk,
                                 .has_expert_rows = problem.layout == Layout::kExpertMajor});
  blocks_.emplace_back(static_cast<std::size_t>(params.routing.tables.total_bytes) / 8);
  params.routing.block = static_cast<std::byte*>(static_cast<void*>(blocks_.back().data()));
  params.routing.rank_of = rank_of_.data();
  params.routing.local_of = local_of_.data();
  params.routing.num_local_experts = static_cast<int>(oracle.experts_of(rank).size());
  params.routing.alignment = problem.alignment;
  params.topk_idx = {tokens.topk_idx.data(), problem.routing.topk, 1};
  params.topk_weights = {tokens.topk_weights.data(), problem.routing.topk, 1};
  params.is_fresh = true;
  params.op.num_lanes = lanes_per_rank_;
  params.block[layout::BlockField::kCapacityRows] =
      static_cast<std::uint32_t>(problem.capacity_of(rank).value_or(kAllRows));
  return params;
}

void RoutedRanks::route(const intranode::DispatchParams& params) {
  const layout::TableShape& shape = params.routing.tables.shape;
  const auto scratch_bytes = static_cast<std::size_t>(intranode::RouteScratch::bytes(shape));
  std::vector<std::uint64_t> scratch(scratch_bytes / 8 + 1);
  const primitives::Lane lane{.scratch =
                                  static_cast<std::byte*>(static_cast<void*>(scratch.data()))};
  const primitives::OpContext<HostExec> op(params.op);
  if (!intranode::route(SoloGroup{}, op, params, lane)) is_resolved_ = false;
  if (!intranode::is_last_to_leave(SoloGroup{}, op)) return;
  if (op.local()->verdict.value != static_cast<std::uint64_t>(intranode::Verdict::kAccepted)) {
    is_resolved_ = false;
  }
}

}  // namespace ep::test
