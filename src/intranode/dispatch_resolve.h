// SPDX-License-Identifier: Apache-2.0
// The resolve step of a dispatch: run by the one lane per rank that got its ticket.
#pragma once

#include "intranode/protocol_steps.h"
#include "intranode/routing_steps.h"
#include "intranode/routing_view.h"

#include <cstdint>

namespace ep::intranode {

/// Counts to every peer with the announcement of the operation, then everybody else's. False if the
/// group gave up.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE bool exchange_counts(G group,
                                    const primitives::OpContext<Exec>& op,
                                    const DispatchParams& params) {
  using Memory = typename Exec::Memory;
  std::uint32_t rejection =
      params.is_fresh ? op.params->rejection : handle_rejection(op, params.routing);
  if (rejection == layout::kAccepted && params.is_fresh) {
    const std::uint64_t rejected = Memory::load_relaxed_gpu(&op.local()->rejected.value);
    if (group.thread_rank() == 0) Memory::store(&op.local()->rejected_position.value, rejected);
    if (rejected != 0) rejection = kRejectedTopkIdx;
    const int num_columns = params.routing.tables.shape.num_columns();
    const auto* totals = op.template array<std::int32_t>(op.control().totals);
    primitives::for_each_strided(
        group, std::int64_t{op.num_ranks()} * num_columns, [&](std::int64_t i) {
          const std::int64_t column = i % num_columns;
          const std::int32_t count = Memory::load_relaxed_gpu(totals + column);
          Memory::store(op.counts_at(static_cast<int>(i / num_columns), op.rank()) + column, count);
        });
  }
  announce_op(group, op, rejection);
  return await_ops(group, op);
}

/// Announces, waits for all ranks, and resolves the routing. Run by one lane per rank. False if the
/// group gave up.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE bool resolve(G group,
                            const primitives::OpContext<Exec>& op,
                            const DispatchParams& params,
                            const primitives::Lane& lane) {
  const RoutingView<Exec> routing(params.routing);
  Verdict verdict = Verdict::kAccepted;
  if (params.has_counts) {
    if (!exchange_counts(group, op, params)) return false;
    verdict = judge_ops(op);
  }
  if (verdict == Verdict::kAccepted && params.has_counts && params.is_fresh) {
    resolve_pairs(group, op, routing);
    if (group.thread_rank() == 0) {
      resolve_experts(op, routing, RouteScratch(lane, routing.shape()).offsets);
      resolve_sizes(op, routing);
    }
    group.sync();
  }
  if (verdict == Verdict::kAccepted && params.has_moves) {
    announce_block(group, op, params.block, params.block_rejection);
    if (!await_blocks(group, op)) return false;
    verdict = judge_blocks(op);
    if (verdict == Verdict::kAccepted && params.is_fresh) resolve_capacities(group, op, routing);
  }
  if (verdict == Verdict::kAccepted && params.has_counts && params.is_fresh) {
    // Rows find their places by the prefixes, and another lane may still sum up its last column.
    const std::int64_t num_columns = routing.shape().num_mask_columns();
    if (!stage_wait(group, op, layout::Stage::kScanned, num_columns)) return false;
  }
  if (verdict != Verdict::kAccepted && params.is_fresh) clear_sizes(group, routing);
  publish_verdict(group, op, verdict);
  return true;
}

}  // namespace ep::intranode
