// SPDX-License-Identifier: Apache-2.0
// Steps of the combine roles: preparing and resolving.
#pragma once

#include "intranode/combine_params.h"
#include "intranode/protocol_steps.h"
#include "primitives/ticket.h"

#include <cstdint>

namespace ep::intranode {

/// Rows of a side array per ticket of the prepare stage.
inline constexpr std::int64_t kSideRowsPerTicket = 256;

EP_HOST_DEVICE inline std::int64_t num_side_tickets(const SideArray& side) {
  if (side.arena_copy == nullptr) return 0;
  return layout::div_up(side.num_rows, kSideRowsPerTicket);
}

/// Copies the rows of one ticket into the arena.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE void copy_side_rows(G group, const SideArray& side, std::int64_t ticket) {
  const std::int64_t first = ticket * kSideRowsPerTicket;
  const std::int64_t left = side.num_rows - first;
  const std::int64_t num_rows = left < kSideRowsPerTicket ? left : kSideRowsPerTicket;
  const auto* input = static_cast<const float*>(side.input.data);
  primitives::for_each_strided(group, num_rows * side.num_cols, [&](std::int64_t i) {
    const std::int64_t row = first + i / side.num_cols;
    const std::int64_t col = i % side.num_cols;
    const float value = input[row * side.input.row_stride + col * side.input.col_stride];
    Exec::Memory::store(side.arena_copy + row * side.num_cols + col, value);
  });
}

/// Side arrays into the arena, by tickets. False if the group gave up.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE bool prepare_side_arrays(G group,
                                        const primitives::OpContext<Exec>& op,
                                        const CombineParams& params) {
  const std::int64_t num_weights = num_side_tickets(params.weights);
  const std::int64_t num_tickets = num_weights + num_side_tickets(params.side);
  if (num_tickets == 0) return true;
  primitives::TicketStream<Exec> tickets(group, op.ticket(layout::Ticket::kPrepare), num_tickets);
  std::int64_t num_done = 0;
  for (std::int64_t i = tickets.next(group); i >= 0; i = tickets.next(group), ++num_done) {
    if (i < num_weights) {
      copy_side_rows<Exec>(group, params.weights, i);
    } else {
      copy_side_rows<Exec>(group, params.side, i - num_weights);
    }
  }
  stage_complete(group, op, layout::Stage::kPrepared, num_done);
  return stage_wait(group, op, layout::Stage::kPrepared, num_tickets);
}

/// Announces, waits for all ranks and judges. Run by one lane per rank. False if the group gave up.
template <primitives::Executor Exec, primitives::Coop G>
EP_HOST_DEVICE bool resolve_combine(G group,
                                    const primitives::OpContext<Exec>& op,
                                    const CombineParams& params) {
  const std::uint32_t rejection = handle_rejection(op, params.routing);
  if (rejection == layout::kAccepted) announce_block(group, op, params.block, rejection);
  announce_op(group, op, rejection);
  send_op_fields(group, op);
  Verdict verdict = await_ops(group, op, [](int, std::uint32_t) {});
  if (verdict == Verdict::kAccepted)
    verdict = await_blocks(group, op, [](int, int, std::uint32_t) {});
  if (verdict == Verdict::kPending) return false;
  publish_verdict(group, op, verdict);
  return true;
}

/// True if the rows of `owner` come through the ring to this rank.
template <primitives::Executor Exec>
EP_HOST_DEVICE bool uses_ring(const primitives::OpContext<Exec>& op,
                              const CombineParams& params,
                              int owner) {
  if (owner == op.rank()) return false;
  return params.pushes || op.value_from(owner, layout::BlockField::kIsStaged) != 0;
}

}  // namespace ep::intranode
